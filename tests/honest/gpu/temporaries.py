# id: L20
# family: replay
# task: norm
# language: triton
# expect: pass
# like: R09
# does: temporaries that come and go inside a call

import torch
import triton
import triton.language as tl


@triton.jit
def scales(x, scale, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(scale + row, tl.rsqrt(tl.sum(v * v) / n + eps))


@triton.jit
def scaled(x, w, scale, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * tl.load(scale + row) * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    block = triton.next_power_of_2(n)
    y = torch.empty_like(x)
    for _ in range(2):  # twice, so that memory is given back and taken again
        scale = torch.empty(m, dtype=torch.float32, device=x.device)
        scales[(m,)](x, scale, n, epsilon, BLOCK=block, num_warps=8)
        spare = torch.empty_like(x)
        scaled[(m,)](x, weight, scale, spare, n, BLOCK=block, num_warps=8)
        del scale
    scaled[(m,)](x, weight, made(x, n, epsilon, block), y, n, BLOCK=block, num_warps=8)
    return y


def made(x, n, epsilon, block):
    scale = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    scales[(x.shape[0],)](x, scale, n, epsilon, BLOCK=block, num_warps=8)
    return scale
