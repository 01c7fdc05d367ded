"""A few rows times a weight, plain: a program has some rows of the weight, and goes along their depth step by step.

Rows of the input are padded to 16 or 32, which a matrix product wants; reading the weight is all the time there is.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK_K, BLOCK_N, STAGES, WARPS


@triton.jit
def skinny_product(x, weight, out, m, n, k, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([ROWS, BLOCK_N], tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        left = tl.load(x + row[:, None] * k + depth[None, :], mask=(row < m)[:, None] & (depth < k)[None, :], other=0.0)
        lines = column.to(tl.int64)[:, None] * k + depth[None, :]
        right = tl.load(weight + lines, mask=(column < n)[:, None] & (depth < k)[None, :], other=0.0)
        total = tl.dot(left, tl.trans(right), total)
    inside = (row < m)[:, None] & (column < n)[None, :]
    tl.store(out + row[:, None] * n + column[None, :], total.to(out.dtype.element_ty), mask=inside)


def kernel(input, weight):
    """`input` [m, k], `weight` [n, k], contiguous -> [m, n]."""
    (m, k), n = input.shape, weight.shape[0]
    out = torch.empty((m, n), dtype=input.dtype, device=input.device)
    rows = 16 if m <= 16 else 32
    tuned = {"BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "num_warps": WARPS, "num_stages": STAGES}
    skinny_product[(triton.cdiv(n, BLOCK_N), triton.cdiv(m, rows))](input, weight, out, m, n, k, ROWS=rows, **tuned)
    return out
