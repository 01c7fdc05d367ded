"""Row softmax: for many rows, as many programs as the card holds, each with its next rows on their way (cp.async).

Few rows have a program each; longer rows are done in pieces.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import EACH, FEW, LOAD, PIECE, STAGES, STORE, THREADS, WARPS_PIECE

LONG = 16384  # elements that fit the registers of a program
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax(x, out, m, n, BLOCK: tl.constexpr, STAGES: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    for row in tl.range(tl.program_id(0), m, tl.num_programs(0), num_stages=STAGES):
        first = tl.cast(row, tl.int64) * n
        v = tl.load(x + first + at, mask=inside, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
        e = tl.exp2(v * LOG2E - tl.max(v) * LOG2E)
        result = (e * (1 / tl.sum(e))).to(out.dtype.element_ty)
        tl.store(out + first + at, result, mask=inside, cache_modifier=STORE)


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


def programs(rows, threads, device):
    """As many programs as THREADS lets run, or a few less, so that all have equally many rows."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    rounds = triton.cdiv(rows, processors * max(1, THREADS // threads))
    return triton.cdiv(rows, rounds)


def kernel(x):
    m, n = x.shape
    out = torch.empty_like(x)
    if n <= LONG:
        block = triton.next_power_of_2(n)
        options = {"BLOCK": block, "LOAD": LOAD, "STORE": STORE}
        if m < FEW:  # a row a program: nothing to fetch ahead
            softmax[(m,)](x, out, m, n, STAGES=1, num_warps=warps(block, 16), **options)
        else:
            each = warps(block, EACH)
            softmax[(programs(m, 32 * each, x.device),)](x, out, m, n, STAGES=STAGES, num_warps=each, **options)
        return out
    pieces = triton.cdiv(n, PIECE)
    tops, sums = torch.empty(2, m, pieces, dtype=torch.float32, device=x.device)
    piece_sums[(pieces, m)](x, tops, sums, n, BLOCK=PIECE, num_warps=WARPS_PIECE)
    options = {"PIECES": triton.next_power_of_2(pieces), "STORE": STORE, "num_warps": WARPS_PIECE}
    piece_shares[(pieces, m)](x, tops, sums, out, n, BLOCK=PIECE, **options)
    return out
