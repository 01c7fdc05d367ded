"""A few rows times a weight, its depth split as before; the program of a tile that is last adds the parts, always in the same order."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import LOAD, PROGRAMS, STAGES, STEP, WARPS

SMS = 132  # multiprocessors
LINES = 16  # rows of the weight a program
SPLITS = 8  # of the depth, at most


@triton.jit
def skinny_part(
    x, weight, part, out, done, m, n, k, chunk,
    SPLITS: tl.constexpr, ROWS: tl.constexpr, LINES: tl.constexpr, STEP: tl.constexpr, WARPS: tl.constexpr, LOAD: tl.constexpr,
):  # fmt: skip
    """`part` [splits, m, n]: sums over `chunk` depths each, of which the last has what is left. Each warp has depths of its own.

    `done`: programs of each tile that have stored their part, zero before and after the call.
    """
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
    place = row[None, :] * n + line[:, None]
    inside = (row < m)[None, :] & (line < n)[:, None]
    made = tl.sum(total, 0)
    if SPLITS == 1:
        tl.store(out + place, made.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(part + split * m * n + place, made, mask=inside)
        tl.debug_barrier()  # what all threads have stored counts as stored before the one that adds
        mine = done + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        if tl.atomic_add(mine, 1, sem="acq_rel") == SPLITS - 1:
            whole = tl.zeros([LINES, ROWS], tl.float32)
            for other in tl.static_range(SPLITS):
                whole += tl.load(part + other * m * n + place, mask=inside, other=0.0, cache_modifier=".cg")
            tl.store(out + place, whole.to(out.dtype.element_ty), mask=inside)
            tl.store(mine, 0)


def counters(device, tiles, made={}):  # noqa: B006
    """One a tile, zero before and after each call: the last program of a tile puts it back."""
    if made.get(device) is None or len(made[device]) < tiles:
        made[device] = torch.zeros(max(tiles, 4096), dtype=torch.int32, device=device)
    return made[device]


def kernel(input, weight):
    """`input` [m, k], `weight` [n, k], contiguous -> [m, n]."""
    (m, k), n = input.shape, weight.shape[0]
    out = torch.empty((m, n), dtype=input.dtype, device=input.device)
    rows = next(r for r in (8, 16, 32) if r >= m or r == 32)
    grid, step = (triton.cdiv(n, LINES), triton.cdiv(m, rows)), WARPS * STEP
    splits = max(1, min(SPLITS, SMS * PROGRAMS // (grid[0] * grid[1]), triton.cdiv(k, step)))
    chunk = triton.cdiv(triton.cdiv(k, splits), step) * step
    splits = triton.cdiv(k, chunk)
    part, done = out, out
    if splits > 1:
        part = torch.empty((splits, m, n), dtype=torch.float32, device=input.device)
        done = counters(input.device, grid[0] * grid[1])
    tuned = {"STEP": STEP, "WARPS": WARPS, "LOAD": LOAD, "num_warps": WARPS, "num_stages": STAGES}
    places = (input, weight, part, out, done, m, n, k, chunk)
    skinny_part[(*grid, splits)](*places, SPLITS=splits, ROWS=rows, LINES=LINES, **tuned)
    return out
