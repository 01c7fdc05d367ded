"""Decode attention over a static cache, plain: each sequence is split into equal parts, and a second kernel puts the parts together.

How many parts there are is said by shapes alone, because a graph is captured once for all lengths; their size is said by the lengths.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, PROGRAMS, STAGES, WARPS

SMS = 132  # multiprocessors
SPLITS = 128  # at most
LOG2E = 1.4426950408889634


@triton.jit
def attend_split(
    q, k, v, lengths, part, height, scale, capacity, splits,
    KV: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One part of one pair (a sequence and a key-value head), for its GROUP queries, padded to ROWS, which a matrix product needs.

    `part` [pairs * GROUP, splits, D]: the mean of its values; `height` [pairs * GROUP, splits]: log2 of its weight, -inf when it is empty.
    """
    pair, split = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + pair // KV)
    chunk = tl.cdiv(tl.cdiv(length, splits), BLOCK) * BLOCK
    begin = split * chunk
    end = tl.minimum(begin + chunk, length)
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, D)[None, :]
    token = tl.arange(0, BLOCK)
    queries = tl.load(q + (pair * GROUP + row) * D + column, mask=row < GROUP, other=0.0)
    k += pair.to(tl.int64) * capacity * D
    v += pair.to(tl.int64) * capacity * D

    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, D], tl.float32)
    for at in range(begin, end, BLOCK):
        inside = at + token < end
        tile = (at + token)[:, None] * D + column
        keys = tl.load(k + tile, mask=inside[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        values = tl.load(v + tile, mask=inside[:, None], other=0.0)
        mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
        total = total * shrink + tl.sum(weights, 1)
        top = higher

    place = (pair * GROUP + row) * splits + split
    weight = tl.where(total > 0, total, 1.0)  # an empty part has no mean
    tl.store(part + place.to(tl.int64) * D + column, mixed / weight[:, None], mask=row < GROUP)
    tl.store(height + place, (top + tl.log2(weight))[:, None], mask=row < GROUP)


@triton.jit
def combine_splits(part, height, out, splits, WIDE: tl.constexpr, D: tl.constexpr):
    """The mean of one head's parts by their weights. WIDE: a power of two, at least `splits`."""
    head = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, WIDE)
    column = tl.arange(0, D)
    heights = tl.load(height + head * splits + split, mask=split < splits, other=float("-inf"))
    parts = tl.load(part + (head * splits + split[:, None]) * D + column[None, :], mask=split[:, None] < splits, other=0.0)
    weights = tl.exp2(heights - tl.max(heights, 0))
    mean = tl.sum(parts * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out + head * D + column, mean.to(out.dtype.element_ty))


def kernel(q, k, v, lengths, scale):
    """`q` [b, heads, d], `k` and `v` [b, kv heads, capacity, d], `lengths` [b], contiguous -> [b, heads, d]."""
    b, heads, d = q.shape
    kv, capacity = k.shape[1:3]
    splits = max(1, min(SMS * PROGRAMS // (b * kv), triton.cdiv(capacity, BLOCK), SPLITS))
    out = torch.empty_like(q)
    part = torch.empty((b * heads, splits, d), dtype=torch.float32, device=q.device)
    height = torch.empty((b * heads, splits), dtype=torch.float32, device=q.device)
    fixed = {"KV": kv, "GROUP": heads // kv, "ROWS": 16, "D": d}
    tuned = {"BLOCK": BLOCK, "num_warps": WARPS, "num_stages": STAGES}
    attend_split[(b * kv, splits)](q, k, v, lengths, part, height, scale * LOG2E, capacity, splits, **fixed, **tuned)
    combine_splits[(b * heads,)](part, height, out, splits, WIDE=triton.next_power_of_2(splits), D=d, num_warps=4)
    return out
