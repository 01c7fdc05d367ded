"""Row softmax: a program takes ROWS rows at a time, so that its barriers serve several maxima and sums. Longer rows in pieces."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import EACH, LOAD, PIECE, REGISTERS, ROWS, STORE, WARPS_PIECE

LONG = 16384  # elements that fit the registers of a program
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax(x, out, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    at = row.to(tl.int64) * n + column
    v = tl.load(x + at, mask=(row < m) & (column < n), other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
    top = tl.maximum(tl.max(v, axis=1, keep_dims=True), -1e30)  # finite where there is no row
    e = tl.exp2(v * LOG2E - top * LOG2E)
    result = e * (1 / tl.sum(e, axis=1, keep_dims=True))
    tl.store(out + at, result.to(out.dtype.element_ty), mask=(row < m) & (column < n), cache_modifier=STORE)


@triton.jit
def piece_sums(x, tops, sums, n, BLOCK: tl.constexpr):
    piece, pieces = tl.program_id(0), tl.num_programs(0)
    row = tl.program_id(1).to(tl.int64)
    at = piece * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
    top = tl.max(v)
    tl.store(tops + row * pieces + piece, top)
    tl.store(sums + row * pieces + piece, tl.sum(tl.exp2(v * LOG2E - top * LOG2E)))


@triton.jit
def piece_shares(x, tops, sums, out, n, BLOCK: tl.constexpr, PIECES: tl.constexpr, STORE: tl.constexpr):
    pieces = tl.num_programs(0)
    piece = pieces - 1 - tl.program_id(0)
    row = (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64)
    at = piece * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
    p = tl.arange(0, PIECES)
    each = tl.load(tops + row * pieces + p, mask=p < pieces, other=float("-inf"))
    top = tl.max(each)
    total = tl.sum(tl.load(sums + row * pieces + p, mask=p < pieces, other=0.0) * tl.exp2((each - top) * LOG2E))
    e = tl.exp2(v * LOG2E - top * LOG2E)
    tl.store(out + row * n + at, (e * (1 / total)).to(out.dtype.element_ty), mask=at < n, cache_modifier=STORE)


def kernel(x):
    m, n = x.shape
    out = torch.empty_like(x)
    if n <= LONG:
        block = triton.next_power_of_2(n)
        options = {"ROWS": ROWS, "BLOCK": block, "LOAD": LOAD, "STORE": STORE, "num_warps": max(1, min(32, ROWS * block // (32 * EACH)))}
        softmax[(triton.cdiv(m, ROWS),)](x, out, m, n, maxnreg=REGISTERS or None, **options)
        return out
    pieces = triton.cdiv(n, PIECE)
    tops, sums = torch.empty(2, m, pieces, dtype=torch.float32, device=x.device)
    piece_sums[(pieces, m)](x, tops, sums, n, BLOCK=PIECE, num_warps=WARPS_PIECE)
    options = {"PIECES": triton.next_power_of_2(pieces), "STORE": STORE, "num_warps": WARPS_PIECE}
    piece_shares[(pieces, m)](x, tops, sums, out, n, BLOCK=PIECE, **options)
    return out
