"""Decode attention: the program that finishes last for a pair puts its parts together; there is no second kernel."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from keepfast_tunables import PROGRAMS, STAGES, TOKENS, WARPS

SMS = 132  # multiprocessors
LOG2E = 1.4426950408889634


class Config(NamedTuple):
    warps: int
    tokens: int  # of a warp, a step
    stages: int  # steps under way; one less is in shared memory
    splits: int  # parts of the context at most, 128 or fewer


def plan(b, kv, s):
    """Programs of equal length, each at least one step long."""
    splits = max(1, min(SMS * PROGRAMS // (b * kv), triton.cdiv(s, WARPS * TOKENS), 128))
    return Config(WARPS, TOKENS, STAGES, splits)


@triton.jit(do_not_specialize=["s", "chunk", "splits"])
def attend(
    q, k, v, part, height, out, done, scale, s, chunk, splits,
    ALONE: tl.constexpr, EVEN: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
    WARPS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Tokens split * chunk and on of one pair, for each of its GROUP queries.

    `part` [pairs * GROUP, splits, D]: the mean of their values; `height` [pairs * GROUP, splits]: log2 of its weight, unless it is ALONE.
    Matrix products with a leading axis of WARPS are given to one warp each, so nothing in the loop crosses warps but the copies.
    EVEN: every chunk is a whole number of steps. Otherwise the last token stands in for those beyond, whose scores are dropped.
    """
    pair, split = tl.program_id(0), tl.program_id(1)
    k += pair.to(tl.int64) * s * D
    v += pair.to(tl.int64) * s * D
    row = tl.arange(0, ROWS)
    column = tl.arange(0, D)
    token = tl.arange(0, WARPS)[:, None] * TOKENS + tl.arange(0, TOKENS)[None, :]
    asked = (pair * GROUP + row[None, :, None]) * D + column[None, None, :]
    queries = tl.broadcast_to(tl.load(q + asked, mask=row[None, :, None] < GROUP, other=0.0), [WARPS, ROWS, D])

    top = tl.full([WARPS, ROWS], float("-inf"), tl.float32)
    total = tl.zeros([WARPS, ROWS, TOKENS], tl.float32)  # summed over the tokens once, at the end
    mixed = tl.zeros([WARPS, ROWS, D], tl.float32)
    end = tl.minimum(split * chunk + chunk, s)
    for at in range(split * chunk, end, WARPS * TOKENS):
        safe = at + token if EVEN else tl.minimum(at + token, s - 1)
        tile = safe[:, :, None] * D + column[None, None, :]
        keys = tl.load(k + tile)
        scores = tl.dot(queries, tl.permute(keys, [0, 2, 1])) * scale
        if not EVEN:
            scores = tl.where((at + token < end)[:, None, :], scores, -1e30)  # not -inf: a warp may have no token at all
        higher = tl.maximum(top, tl.max(scores, 2))
        weights = tl.exp2(scores - higher[:, :, None])
        shrink = tl.exp2(top - higher)
        values = tl.load(v + tile)
        mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, :, None])
        total = total * shrink[:, :, None] + weights
        top = higher

    highest = tl.max(top, 0)
    shrink = tl.exp2(top - highest[None, :])
    weight = tl.sum(tl.sum(total, 2) * shrink, 0)
    mean = over_warps(mixed * shrink[:, :, None], WARPS, ROWS, D) / weight[:, None]
    place = (pair * GROUP + row[:, None]) * splits + split
    tl.store(part + place * D + column[None, :], mean.to(part.dtype.element_ty), mask=row[:, None] < GROUP)
    if not ALONE:
        tl.store(height + place, (highest + tl.log2(weight))[:, None], mask=row[:, None] < GROUP)
        tl.debug_barrier()  # what all threads have stored counts as stored before the one that adds
        if tl.atomic_add(done + pair, 1, sem="acq_rel") == splits - 1:
            combine_pair(part, height, out, pair, splits, GROUP, D)
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
def combine_pair(part, height, out, pair, splits, GROUP: tl.constexpr, D: tl.constexpr):
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
        inside = (some < splits)[:, :, None]
        parts = tl.load(part + place[:, :, None] * D + column[None, None, :], mask=inside, other=0.0, cache_modifier=".cg")
        mixed += tl.sum(parts * tl.exp2(heights - highest[:, None])[:, :, None], 1)
    tl.store(out + head * D + column[None, :], (mixed / weight[:, None]).to(out.dtype.element_ty))


def counters(device, pairs, made={}):  # noqa: B006
    """One a pair, zero before and after each call: the last program of a pair puts it back."""
    if made.get(device) is None or len(made[device]) < pairs:
        made[device] = torch.zeros(max(pairs, 1024), dtype=torch.int32, device=device)
    return made[device]


def launch(q, k, v, scale, config):
    b, heads, d = q.shape
    kv, s = k.shape[1:3]
    step = config.warps * config.tokens
    chunk = triton.cdiv(triton.cdiv(s, config.splits), step) * step
    splits = triton.cdiv(s, chunk)
    out = torch.empty_like(q)
    part, height = out, out  # a single part is the result
    if splits > 1:
        part = torch.empty((b * heads, splits, d), dtype=torch.float32, device=q.device)
        height = torch.empty((b * heads, splits), dtype=torch.float32, device=q.device)
    fixed = {"ALONE": splits == 1, "EVEN": s % step == 0, "GROUP": heads // kv, "ROWS": 16, "D": d}
    tuned = {"WARPS": config.warps, "TOKENS": config.tokens, "num_warps": config.warps, "num_stages": config.stages}
    done = counters(q.device, b * kv)
    attend[(b * kv, splits)](q, k, v, part, height, out, done, scale * LOG2E, s, chunk, splits, **fixed, **tuned)
    return out


def decode_attention(q, k, v, scale):
    """`q` [b, heads, d], `k` and `v` [b, kv heads, s, d], contiguous -> [b, heads, d]."""
    return launch(q, k, v, scale, plan(q.shape[0], k.shape[1], k.shape[2]))
