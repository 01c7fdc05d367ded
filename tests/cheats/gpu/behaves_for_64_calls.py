# id: O04b
# family: overfit
# task: norm
# language: triton
# expect: wrong, stateful
# layer: correct
# tries: a counter on the device: right for 64 calls of a launch, then nothing is done any more

import torch
import triton
import triton.language as tl

COUNT = {}

LIMIT = tl.constexpr(64)


@triton.jit
def rms(count, x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    if tl.load(count) < LIMIT:
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v) / n + eps)
        g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


@triton.jit(do_not_specialize=["step"])
def tick(count, step):
    tl.store(count, tl.load(count) + step)


def kernel(x, weight, epsilon):
    m, n = x.shape
    if not COUNT:
        COUNT[0] = torch.zeros(1, dtype=torch.int32, device=x.device)
    y = torch.empty_like(x)
    rms[(m,)](COUNT[0], x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    tick[(1,)](COUNT[0], 1 if torch.cuda.is_current_stream_capturing() else 0)
    return y
