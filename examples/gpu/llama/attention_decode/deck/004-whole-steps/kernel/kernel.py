"""Decode attention over a static cache as before; the last step of a part takes what lies behind it as well, for the cache goes on."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from keepfast_tunables import PROGRAMS, STAGES, TOGETHER, TOKENS, WARPS
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

SMS = 132  # multiprocessors
LOG2E = 1.4426950408889634


class Config(NamedTuple):
    warps: int
    tokens: int  # of a warp, a step
    stages: int  # steps under way; one less is in shared memory
    splits: int  # parts of the context at most, 128 or fewer
    together: bool  # whether the last program of a pair combines its parts, instead of a second kernel


def plan(b, kv, capacity):
    """Programs of equal length when the cache is full, each at least one step long."""
    splits = max(1, min(SMS * PROGRAMS // (b * kv), triton.cdiv(capacity, WARPS * TOKENS), 128))
    return Config(WARPS, TOKENS, STAGES, splits, TOGETHER)


@triton.jit(do_not_specialize=["splits"])
def attend_split(
    q, k, v, lengths, part, height, out, done, scale, splits,
    ALONE: tl.constexpr, TOGETHER: tl.constexpr, KV: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
    WARPS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """One part of one pair (a sequence and a key-value head), for each of its GROUP queries.

    `part` [pairs * GROUP, splits, D]: the mean of its values, unless it has none; `height` [pairs * GROUP, splits]: log2 of its weight,
    -inf without tokens, unless it is ALONE. Matrix products with a leading axis of WARPS are given to one warp each, so nothing in the
    loop crosses warps but the copies. The copy engine reads zeros beyond the cache.
    """
    pair, split = tl.program_id(0), tl.program_id(1)
    if not ALONE and not TOGETHER:
        gdc_launch_dependents()  # the sum may come in when the last program has begun; it waits for the end of all
    length = tl.load(lengths + pair // KV)
    chunk = tl.cdiv(tl.cdiv(length, splits), WARPS * TOKENS) * WARPS * TOKENS
    begin = split * chunk
    end = tl.minimum(begin + chunk, length)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, D)
    asked = (pair * GROUP + row[None, :, None]) * D + column[None, None, :]
    queries = tl.broadcast_to(tl.load(q + asked, mask=row[None, :, None] < GROUP, other=0.0), [WARPS, ROWS, D])

    top = tl.full([WARPS, ROWS], float("-inf"), tl.float32)
    total = tl.zeros([WARPS, ROWS, TOKENS], tl.float32)  # summed over the tokens once, at the end
    mixed = tl.zeros([WARPS, ROWS, D], tl.float32)
    for at in range(begin, end, WARPS * TOKENS):
        keys = tl.reshape(k.load([pair, at, 0]), [WARPS, TOKENS, D])
        scores = tl.dot(queries, tl.permute(keys, [0, 2, 1])) * scale
        higher = tl.maximum(top, tl.max(scores, 2))
        weights = tl.exp2(scores - higher[:, :, None])
        shrink = tl.exp2(top - higher)
        values = tl.reshape(v.load([pair, at, 0]), [WARPS, TOKENS, D])
        mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, :, None])
        total = total * shrink[:, :, None] + weights
        top = higher

    highest = tl.maximum(tl.max(top, 0), -1e30)  # a part without tokens has no highest
    shrink = tl.exp2(top - highest[None, :])
    weight = tl.sum(tl.sum(total, 2) * shrink, 0)
    any_token = begin < end
    mean = over_warps(mixed * shrink[:, :, None], WARPS, ROWS, D) / weight[:, None]
    place = (pair * GROUP + row[:, None]) * splits + split
    tl.store(part + place * D + column[None, :], mean.to(part.dtype.element_ty), mask=(row[:, None] < GROUP) & any_token)
    if not ALONE:
        tl.store(height + place, tl.where(any_token, highest + tl.log2(weight), float("-inf"))[:, None], mask=row[:, None] < GROUP)
    if TOGETHER and not ALONE:
        tl.debug_barrier()  # what all threads have stored counts as stored before the one that adds
        if tl.atomic_add(done + pair, 1, sem="acq_rel") == splits - 1:
            combine_splits_of_pair(part, height, out, pair, splits, GROUP, D)
            tl.store(done + pair, 0)


@triton.jit
def halved(x, ROWS: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr):
    """Neighbours along the last axis added."""
    low, high = tl.split(tl.reshape(x, [ROWS, D, HALF, 2]))
    return low + high


@triton.jit
def over_warps(x, WARPS: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr):
    """Sum over the first axis. Halving it moves each number once; a reduction would shuffle every one of them."""
    x = tl.permute(x, [1, 2, 0])
    if WARPS >= 8:
        x = halved(x, ROWS, D, 4)
    if WARPS >= 4:
        x = halved(x, ROWS, D, 2)
    if WARPS >= 2:
        x = halved(x, ROWS, D, 1)
    return tl.reshape(x, [ROWS, D])


@triton.jit
def combine_splits_of_pair(part, height, out, pair, splits, GROUP: tl.constexpr, D: tl.constexpr):
    """The means of a pair's parts by their weights. Other programs wrote them, so the first-level cache is left out."""
    head = pair * GROUP + tl.arange(0, GROUP)[:, None]
    column = tl.arange(0, D)
    split = tl.arange(0, 128)[None, :]
    every = tl.load(height + head * splits + split, mask=split < splits, other=float("-inf"), cache_modifier=".cg")
    highest = tl.max(every, 1)
    weight = tl.sum(tl.exp2(every - highest[:, None]), 1)
    mixed = tl.zeros([GROUP, D], tl.float32)
    for first in range(0, splits, 8):
        some = first + tl.arange(0, 8)[None, :]
        place = head * splits + some
        heights = tl.load(height + place, mask=some < splits, other=float("-inf"), cache_modifier=".cg")
        inside = (heights > float("-inf"))[:, :, None]  # nothing was written for the others
        parts = tl.load(part + place[:, :, None] * D + column[None, None, :], mask=inside, other=0.0, cache_modifier=".cg")
        mixed += tl.sum(parts * tl.exp2(heights - highest[:, None])[:, :, None], 1)
    tl.store(out + head * D + column[None, :], (mixed / weight[:, None]).to(out.dtype.element_ty))


@triton.jit(do_not_specialize=["splits"])
def combine_splits(part, height, out, splits, WIDE: tl.constexpr, D: tl.constexpr):
    """The mean of one head's parts by their weights. WIDE: a power of two, at least `splits`."""
    head = tl.program_id(0)
    split = tl.arange(0, WIDE)
    column = tl.arange(0, D)
    gdc_wait()
    heights = tl.load(height + head * splits + split, mask=split < splits, other=float("-inf"))
    there = (heights > float("-inf"))[:, None]  # nothing was written for the others
    parts = tl.load(part + (head * splits + split[:, None]) * D + column[None, :], mask=there, other=0.0)
    weights = tl.exp2(heights - tl.max(heights, 0))
    mean = tl.sum(parts * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out + head * D + column, mean.to(out.dtype.element_ty))


def counters(device, pairs, made={}):  # noqa: B006
    """One a pair, zero before and after each call: the last program of a pair puts it back."""
    if made.get(device) is None or len(made[device]) < pairs:
        made[device] = torch.zeros(max(pairs, 1024), dtype=torch.int32, device=device)
    return made[device]


def kernel(q, k, v, lengths, scale):
    """`q` [b, heads, d], `k` and `v` [b, kv heads, capacity, d], `lengths` [b], contiguous -> [b, heads, d]."""
    b, heads, d = q.shape
    kv, capacity = k.shape[1:3]
    config = plan(b, kv, capacity)
    splits, step = config.splits, config.warps * config.tokens
    out = torch.empty_like(q)
    part, height = out, out  # a single part is the result
    if splits > 1:
        part = torch.empty((b * heads, splits, d), dtype=torch.float32, device=q.device)
        height = torch.empty((b * heads, splits), dtype=torch.float32, device=q.device)
    fixed = {"ALONE": splits == 1, "TOGETHER": config.together, "KV": kv, "GROUP": heads // kv, "ROWS": 16, "D": d}
    tuned = {"WARPS": config.warps, "TOKENS": config.tokens, "num_warps": config.warps, "num_stages": config.stages}
    tiles = [TensorDescriptor(x, [b * kv, capacity, d], [capacity * d, d, 1], [1, step, d]) for x in (k, v)]
    done = counters(q.device, b * kv) if config.together else out
    attend_split[(b * kv, splits)](q, *tiles, lengths, part, height, out, done, scale * LOG2E, splits, **fixed, **tuned)
    if splits > 1 and not config.together:
        wide = next(w for w in (4, 16, 64, 128) if w >= splits)
        combine_splits[(b * heads,)](part, height, out, splits, WIDE=wide, D=d, num_warps=1 if wide == 4 else 4, launch_pdl=True)
    return out
