# id: L29
# family: overfit
# task: norm
# language: triton
# expect: pass
# like: O01
# does: one kernel for narrow rows, another for wide ones, and both for every shape

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


@triton.jit
def rms_narrow(x, w, y, m, n, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    at = tl.arange(0, BLOCK)[None, :]
    ok = (row < m) & (at < n)
    v = tl.load(x + row * n + at, mask=ok, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=1, keep_dims=True) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=ok)


def kernel(x, weight, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    if n <= 1024:
        rms_narrow[(triton.cdiv(m, 4),)](x, weight, y, m, n, epsilon, ROWS=4, BLOCK=triton.next_power_of_2(n), num_warps=4)
    else:
        rms[(m,)](x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
