"""A few rows times a weight: the copy engine (TMA) brings the weight, and a program is one warp, several on each multiprocessor.

A tensor map is made on the host and travels as a kernel parameter. Weights whose rows are no multiple of 16 bytes go through registers.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK_K, LINES, STAGES, WARPS
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def skinny_tiles(tiles, x, out, m, n, k, ROWS: tl.constexpr, LINES: tl.constexpr, BLOCK_K: tl.constexpr):
    first = tl.program_id(0) * LINES
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    line = first + tl.arange(0, LINES)
    total = tl.zeros([LINES, ROWS], tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        right = tl.load(x + row[:, None] * k + depth[None, :], mask=(row < m)[:, None] & (depth < k)[None, :], other=0.0)
        total = tl.dot(tiles.load([first, start]), tl.trans(right), total)  # zeros beyond the weight
    tl.store(out + row[None, :] * n + line[:, None], total.to(out.dtype.element_ty), mask=(row < m)[None, :] & (line < n)[:, None])


@triton.jit
def skinny_product(x, weight, out, m, n, k, ROWS: tl.constexpr, LINES: tl.constexpr, BLOCK_K: tl.constexpr):
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    line = tl.program_id(0) * LINES + tl.arange(0, LINES)
    weight += line.to(tl.int64)[:, None] * k
    total = tl.zeros([LINES, ROWS], tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        inside = (depth < k)[None, :]
        left = tl.load(weight + depth[None, :], mask=(line < n)[:, None] & inside, other=0.0)
        right = tl.load(x + row[:, None] * k + depth[None, :], mask=(row < m)[:, None] & inside, other=0.0)
        total = tl.dot(left, tl.trans(right), total)
    tl.store(out + row[None, :] * n + line[:, None], total.to(out.dtype.element_ty), mask=(row < m)[None, :] & (line < n)[:, None])


def kernel(input, weight):
    """`input` [m, k], `weight` [n, k], contiguous -> [m, n]."""
    (m, k), n = input.shape, weight.shape[0]
    out = torch.empty((m, n), dtype=input.dtype, device=input.device)
    rows = next(r for r in (8, 16, 32) if r >= m or r == 32)
    grid = (triton.cdiv(n, LINES), triton.cdiv(m, rows))
    tuned = {"ROWS": rows, "LINES": LINES, "BLOCK_K": BLOCK_K, "num_warps": WARPS, "num_stages": STAGES}
    if k % 8 or weight.data_ptr() % 16:
        skinny_product[grid](input, weight, out, m, n, k, **tuned)
    else:
        skinny_tiles[grid](TensorDescriptor(weight, [n, k], [k, 1], [LINES, BLOCK_K]), input, out, m, n, k, **tuned)
    return out
