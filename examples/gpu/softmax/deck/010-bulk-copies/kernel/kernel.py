"""Row softmax: rows ahead as before, but moved by the copy engine (TMA), one instruction a row.

A tensor map is made on the host and travels as a kernel parameter, so nothing is allocated and a graph can replay it. A row is a
box of n / 256 lines of 256 elements; rows that are not such a box, and few rows, go through registers. Longer rows in pieces.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BULK_STORE, EACH, FEW, PIECE, STAGES, STORE, THREADS, WARPS_PIECE
from triton.tools.tensor_descriptor import TensorDescriptor

LONG = 16384  # elements that fit the registers of a program
LOG2E = tl.constexpr(1.4426950408889634)
LINE = 256  # elements of a line of a box: the most that the copy engine takes
LINES = tl.constexpr(LINE)


@triton.jit
def softmax_bulk(x, out, out_map, m, n, BLOCK: tl.constexpr, STAGES: tl.constexpr, BULK: tl.constexpr, STORE: tl.constexpr):
    lines: tl.constexpr = BLOCK // LINES
    at = tl.arange(0, lines)[:, None] * LINES + tl.arange(0, LINES)[None, :]
    for row in tl.range(tl.program_id(0), m, tl.num_programs(0), num_stages=STAGES):
        v = x.load([row * lines, 0]).to(tl.float32)
        e = tl.exp2(v * LOG2E - tl.max(v) * LOG2E)
        result = (e * (1 / tl.sum(e))).to(tl.bfloat16)
        if BULK:
            out_map.store([row * lines, 0], result)
        else:
            tl.store(out + tl.cast(row, tl.int64) * n + at, result, cache_modifier=STORE)


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr, STORE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
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


def programs(rows, threads, device):
    """As many programs as THREADS lets run, or a few less, so that all have equally many rows."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    rounds = triton.cdiv(rows, processors * max(1, THREADS // threads))
    return triton.cdiv(rows, rounds)


def kernel(x):
    m, n = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(n)
    if n <= LONG and (m < FEW or n != block or n < LINE):
        softmax[(m,)](x, out, n, BLOCK=block, STORE=STORE, num_warps=warps(block, 16))
        return out
    if n <= LONG:
        each = warps(block, EACH)
        maps = [TensorDescriptor.from_tensor(t.view(-1, LINE), [n // LINE, LINE]) for t in (x, out)]
        options = {"BLOCK": block, "STAGES": STAGES, "BULK": BULK_STORE, "STORE": STORE, "num_warps": each}
        softmax_bulk[(programs(m, 32 * each, x.device),)](maps[0], out, maps[1], m, n, **options)
        return out
    pieces = triton.cdiv(n, PIECE)
    tops, sums = torch.empty(2, m, pieces, dtype=torch.float32, device=x.device)
    piece_sums[(pieces, m)](x, tops, sums, n, BLOCK=PIECE, num_warps=WARPS_PIECE)
    options = {"PIECES": triton.next_power_of_2(pieces), "STORE": STORE, "num_warps": WARPS_PIECE}
    piece_shares[(pieces, m)](x, tops, sums, out, n, BLOCK=PIECE, **options)
    return out
