# id: R03
# family: replay
# task: norm
# language: triton
# expect: wrong, stateful
# layer: correct
# tries: give a copy of the last answer for this shape

import torch
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


def launch(x, weight, y, epsilon):
    m, n = x.shape
    rms[(m,)](x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)


def kernel(x, weight, epsilon, known={}):  # noqa: B006
    if x.shape in known:
        return known[x.shape].clone()
    y = torch.empty_like(x)
    launch(x, weight, y, epsilon)
    known[x.shape] = y
    return y
