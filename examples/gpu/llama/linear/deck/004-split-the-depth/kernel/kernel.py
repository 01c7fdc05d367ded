"""A few rows times a weight: where that has few rows its depth is split, and a second kernel adds the parts, always in one order."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import LOAD, PROGRAMS, STAGES, STEP, WARPS

SMS = 132  # multiprocessors
LINES = 16  # rows of the weight a program
SPLITS = 8  # of the depth, at most


@triton.jit
def skinny_part(
    x, weight, part, m, n, k, chunk, ROWS: tl.constexpr, LINES: tl.constexpr, STEP: tl.constexpr, WARPS: tl.constexpr, LOAD: tl.constexpr
):
    """`part` [splits, m, n]: sums over `chunk` depths each, of which the last has what is left. Each warp has depths of its own."""
    split = tl.program_id(2)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    line = tl.program_id(0) * LINES + tl.arange(0, LINES)
    weight += line.to(tl.int64)[None, :, None] * k
    x += row[None, :, None] * k
    end = tl.minimum(split * chunk + chunk, k)
    total = tl.zeros([WARPS, LINES, ROWS], tl.float32)
    for start in range(split * chunk, end, WARPS * STEP):
        depth = (start + tl.arange(0, WARPS)[:, None] * STEP + tl.arange(0, STEP)[None, :])[:, None, :]
        left = tl.load(weight + depth, mask=(line < n)[None, :, None] & (depth < end), other=0.0, eviction_policy=LOAD)
        right = tl.load(x + depth, mask=(row < m)[None, :, None] & (depth < end), other=0.0)
        total = tl.dot(left, tl.permute(right, [0, 2, 1]), total)
    place = (split * m + row[None, :]) * n + line[:, None]
    tl.store(part + place, tl.sum(total, 0).to(part.dtype.element_ty), mask=(row < m)[None, :] & (line < n)[:, None])


@triton.jit
def skinny_sum(part, out, count, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(part + split * count + at, mask=at < count, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < count)


def kernel(input, weight):
    """`input` [m, k], `weight` [n, k], contiguous -> [m, n]."""
    (m, k), n = input.shape, weight.shape[0]
    out = torch.empty((m, n), dtype=input.dtype, device=input.device)
    rows = next(r for r in (8, 16, 32) if r >= m or r == 32)
    grid, step = (triton.cdiv(n, LINES), triton.cdiv(m, rows)), WARPS * STEP
    splits = max(1, min(SPLITS, SMS * PROGRAMS // (grid[0] * grid[1]), triton.cdiv(k, step)))
    chunk = triton.cdiv(triton.cdiv(k, splits), step) * step
    splits = triton.cdiv(k, chunk)
    part = torch.empty((splits, m, n), dtype=torch.float32, device=input.device) if splits > 1 else out
    tuned = {"STEP": STEP, "WARPS": WARPS, "LOAD": LOAD, "num_warps": WARPS, "num_stages": STAGES}
    skinny_part[(*grid, splits)](input, weight, part, m, n, k, chunk, ROWS=rows, LINES=LINES, **tuned)
    if splits > 1:
        skinny_sum[(triton.cdiv(m * n, 256),)](part, out, m * n, SPLITS=splits, BLOCK=256, num_warps=1)
    return out
