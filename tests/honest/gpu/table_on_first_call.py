# id: L10
# family: timing
# task: norm
# language: triton
# expect: pass
# like: T15
# does: a table of constants that is made on the card at the first call

import torch
import triton
import triton.language as tl

TABLE = {}


@triton.jit
def rms(table, x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    v *= tl.load(table + at, mask=at < n)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    if n not in TABLE:
        TABLE[n] = torch.cos(torch.zeros(n, device=x.device))  # ones
    y = torch.empty_like(x)
    rms[(m,)](TABLE[n], x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
