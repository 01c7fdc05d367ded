"""A few rows times a weight, all of it together: one row by hand; several with each warp at depths of its own, the depth split where the
weight has few rows and added in one order by the program that is last; everything launched early (programmatic dependent launch).
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import AHEAD, DEPTH, EARLY, FEW_LINES, LINES, LOAD, PROGRAMS, ROW_WARPS, STAGES, STEP, WARPS
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

SMS = 132  # multiprocessors
TILE = 16  # several rows: rows of the weight a program
SPLITS = 8  # of the depth, at most
FEW = 8192  # a weight with so many rows or less has few


@triton.jit
def begin_early(weight, first, start, n, k, LINES: tl.constexpr, EARLY: tl.constexpr):
    """Asks for EARLY elements from `start` on of LINES rows of the weight from `first` on, then waits for all that came before."""
    gdc_launch_dependents()  # whoever comes next waits for the end of this
    if EARLY > 0:
        line = tl.minimum(first + tl.arange(0, LINES), n - 1).to(tl.int64)
        depth = tl.minimum(start + tl.arange(0, EARLY // 64) * 64, k - 1)
        ask_for_lines(weight + line[:, None] * k + depth[None, :])
    gdc_wait()


@triton.jit
def ask_for_lines(address):
    """Have the second-level cache read lines of 128 bytes. Nobody waits for them."""
    code: tl.constexpr = "prefetch.global.L2 [$1]; mov.b32 $0, 0;"
    tl.inline_asm_elementwise(code, "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def skinny_one_row(
    x, weight, out, n, k, LINES: tl.constexpr, DEPTH: tl.constexpr, AHEAD: tl.constexpr, EARLY: tl.constexpr, LOAD: tl.constexpr
):
    begin_early(weight, tl.program_id(0) * LINES, 0, n, k, LINES, EARLY)
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
def skinny_part(
    x, weight, part, out, done, m, n, k, chunk,
    SPLITS: tl.constexpr, ROWS: tl.constexpr, LINES: tl.constexpr, STEP: tl.constexpr, WARPS: tl.constexpr, EARLY: tl.constexpr,
    LOAD: tl.constexpr,
):  # fmt: skip
    """`part` [splits, m, n]: sums over `chunk` depths each, of which the last has what is left. Each warp has depths of its own.

    `done`: programs of each tile that have stored their part, zero before and after the call.
    """
    split = tl.program_id(2)
    begin_early(weight, tl.program_id(0) * LINES, split * chunk, n, k, LINES, EARLY)
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
    if m == 1:
        lines = FEW_LINES if n <= FEW else LINES
        tuned = {"LINES": lines, "DEPTH": DEPTH, "AHEAD": AHEAD, "EARLY": EARLY, "LOAD": LOAD, "num_warps": ROW_WARPS}
        skinny_one_row[(triton.cdiv(n, lines),)](input, weight, out, n, k, launch_pdl=True, **tuned)
        return out
    rows = next(r for r in (8, 16, 32) if r >= m or r == 32)
    grid, step = (triton.cdiv(n, TILE), triton.cdiv(m, rows)), WARPS * STEP
    splits = max(1, min(SPLITS, SMS * PROGRAMS // (grid[0] * grid[1]), triton.cdiv(k, step)))
    chunk = triton.cdiv(triton.cdiv(k, splits), step) * step
    splits = triton.cdiv(k, chunk)
    part, done = out, out
    if splits > 1:
        part = torch.empty((splits, m, n), dtype=torch.float32, device=input.device)
        done = counters(input.device, grid[0] * grid[1])
    tuned = {"STEP": STEP, "WARPS": WARPS, "EARLY": EARLY, "LOAD": LOAD, "num_warps": WARPS, "num_stages": STAGES}
    places = (input, weight, part, out, done, m, n, k, chunk)
    skinny_part[(*grid, splits)](*places, launch_pdl=True, SPLITS=splits, ROWS=rows, LINES=TILE, **tuned)
    return out
