import torch
import triton
import triton.language as tl


@triton.jit
def row_norm(x, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0)
        total += v * v
    scale = tl.rsqrt(tl.sum(total) / n + eps)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0)
        tl.store(y + row * n + at, v * scale, mask=at < n)


def kernel(x, epsilon):
    y = torch.empty_like(x)
    m, n = x.shape
    row_norm[(m,)](x, y, n, epsilon, BLOCK=4096, num_warps=8)
    return y
