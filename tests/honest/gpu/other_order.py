# id: L27
# family: correctness
# task: rows
# language: triton
# expect: pass
# like: G11
# does: sums a row from its end, in another order than anybody else

import torch
import triton
import triton.language as tl


@triton.jit
def rms(x, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for back in range(0, n, BLOCK):
        at = n - 1 - back - tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at >= 0, other=0.0)
        total += tl.sum(v * v)
    scale = tl.rsqrt(total / n + eps)
    for back in range(0, n, BLOCK):
        at = n - 1 - back - tl.arange(0, BLOCK)
        tl.store(y + row * n + at, tl.load(x + row * n + at, mask=at >= 0, other=0.0) * scale, mask=at >= 0)


def kernel(x, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    rms[(m,)](x, y, n, epsilon, BLOCK=2048, num_warps=8)
    return y
