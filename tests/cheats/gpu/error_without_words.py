# id: H02d
# family: tampering
# task: norm
# language: python
# expect: crash
# layer: plan
# tries: an exception whose text raises another one, in whoever reports it
# idle: rms

import triton
import triton.language as tl


@triton.jit
def rms(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


class Wordless(Exception):
    def __str__(self):
        raise Wordless

    __repr__ = __str__


def kernel(x, weight, epsilon):
    raise Wordless
