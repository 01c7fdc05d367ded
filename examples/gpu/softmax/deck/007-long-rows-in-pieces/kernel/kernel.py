"""Row softmax: a row that fits stays in registers; a longer one is shared by several programs, in two launches.

The first launch forms maximum and sum of every piece; the second puts them together and reads the pieces again, last ones first,
because those are still in the second-level cache.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import EACH, LOAD, PIECE, STORE, WARPS_PIECE

LONG = 16384  # elements that fit the registers of a program
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
    e = tl.exp2(v * LOG2E - tl.max(v) * LOG2E)
    tl.store(out + row * n + at, (e * (1 / tl.sum(e))).to(out.dtype.element_ty), mask=at < n, cache_modifier=STORE)


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


def warps(block, each):
    """So many warps that a thread has `each` elements of a row."""
    return max(1, min(32, block // (32 * each)))


def kernel(x):
    m, n = x.shape
    out = torch.empty_like(x)
    if n <= LONG:
        block = triton.next_power_of_2(n)
        softmax[(m,)](x, out, n, BLOCK=block, LOAD=LOAD, STORE=STORE, num_warps=warps(block, EACH))
        return out
    pieces = triton.cdiv(n, PIECE)
    tops, sums = torch.empty(2, m, pieces, dtype=torch.float32, device=x.device)
    piece_sums[(pieces, m)](x, tops, sums, n, BLOCK=PIECE, num_warps=WARPS_PIECE)
    options = {"PIECES": triton.next_power_of_2(pieces), "STORE": STORE, "num_warps": WARPS_PIECE}
    piece_shares[(pieces, m)](x, tops, sums, out, n, BLOCK=PIECE, **options)
    return out
