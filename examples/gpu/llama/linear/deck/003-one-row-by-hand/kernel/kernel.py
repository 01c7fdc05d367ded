"""A few rows times a weight. One row: products by hand, loads of 16 bytes, no matrix product. Several: each warp has depths of its own, so
nothing crosses warps before the end."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import AHEAD, DEPTH, FEW_LINES, LINES, LOAD, ROW_WARPS, STAGES, STEP, WARPS

FEW = 8192  # a weight with so many rows or less has few


@triton.jit
def skinny_one_row(x, weight, out, n, k, LINES: tl.constexpr, DEPTH: tl.constexpr, AHEAD: tl.constexpr, LOAD: tl.constexpr):
    line = tl.program_id(0) * LINES + tl.arange(0, LINES)
    weight += line.to(tl.int64)[:, None] * k
    total = tl.zeros([LINES, DEPTH], tl.float32)
    for start in tl.range(0, k, DEPTH, num_stages=AHEAD):
        depth = start + tl.arange(0, DEPTH)
        there = (line < n)[:, None] & (depth < k)[None, :]
        left = tl.load(weight + depth[None, :], mask=there, other=0.0, eviction_policy=LOAD).to(tl.float32)
        right = tl.load(x + depth, mask=depth < k, other=0.0, eviction_policy="evict_last").to(tl.float32)
        total += left * right[None, :]
    tl.store(out + line, tl.sum(total, 1).to(out.dtype.element_ty), mask=line < n)


@triton.jit
def skinny_rows(
    x, weight, out, m, n, k, ROWS: tl.constexpr, LINES: tl.constexpr, STEP: tl.constexpr, WARPS: tl.constexpr, LOAD: tl.constexpr
):
    """Products with a leading axis of WARPS are given to one warp each: LINES rows of the weight, a slice of the depth."""
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    line = tl.program_id(0) * LINES + tl.arange(0, LINES)
    weight += line.to(tl.int64)[None, :, None] * k
    x += row[None, :, None] * k
    total = tl.zeros([WARPS, LINES, ROWS], tl.float32)
    for start in range(0, k, WARPS * STEP):
        depth = (start + tl.arange(0, WARPS)[:, None] * STEP + tl.arange(0, STEP)[None, :])[:, None, :]
        left = tl.load(weight + depth, mask=(line < n)[None, :, None] & (depth < k), other=0.0, eviction_policy=LOAD)
        right = tl.load(x + depth, mask=(row < m)[None, :, None] & (depth < k), other=0.0)
        total = tl.dot(left, tl.permute(right, [0, 2, 1]), total)
    made = tl.sum(total, 0).to(out.dtype.element_ty)
    tl.store(out + row[None, :] * n + line[:, None], made, mask=(row < m)[None, :] & (line < n)[:, None])


def kernel(input, weight):
    """`input` [m, k], `weight` [n, k], contiguous -> [m, n]."""
    (m, k), n = input.shape, weight.shape[0]
    out = torch.empty((m, n), dtype=input.dtype, device=input.device)
    if m == 1:
        lines = FEW_LINES if n <= FEW else LINES
        tuned = {"LINES": lines, "DEPTH": DEPTH, "AHEAD": AHEAD, "LOAD": LOAD, "num_warps": ROW_WARPS}
        skinny_one_row[(triton.cdiv(n, lines),)](input, weight, out, n, k, **tuned)
        return out
    rows = next(r for r in (8, 16, 32) if r >= m or r == 32)
    tuned = {"STEP": STEP, "WARPS": WARPS, "LOAD": LOAD, "num_warps": WARPS, "num_stages": STAGES}
    skinny_rows[(triton.cdiv(n, 16), triton.cdiv(m, rows))](input, weight, out, m, n, k, ROWS=rows, LINES=16, **tuned)
    return out
