"""Decode attention: contexts are whole blocks in all cases that count, so nothing needs a mask."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, PROGRAMS, STAGES, WARPS

SMS = 132  # multiprocessors
LOG2E = 1.4426950408889634


class Config(NamedTuple):
    block: int  # tokens a step
    warps: int
    stages: int  # steps under way; one less is in shared memory
    splits: int  # parts of the context at most, 128 or fewer


def plan(b, kv, s):
    """Programs of equal length, each at least one step long."""
    return Config(BLOCK, WARPS, STAGES, max(1, min(SMS * PROGRAMS // (b * kv), triton.cdiv(s, BLOCK), 128)))


@triton.jit(do_not_specialize=["s", "chunk", "splits"])
def attend(
    q, k, v, part, height, scale, s, chunk, splits,
    ALONE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Tokens split * chunk and on of one pair, for each of its GROUP queries.

    `part` [pairs * GROUP, splits, D]: the mean of their values; `height` [pairs * GROUP, splits]: log2 of its weight, unless it is ALONE.
    """
    pair, split = tl.program_id(0), tl.program_id(1)
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, D)[None, :]
    token = tl.arange(0, BLOCK)
    queries = tl.load(q + (pair * GROUP + row) * D + column, mask=row < GROUP, other=0.0)
    k += pair.to(tl.int64) * s * D
    v += pair.to(tl.int64) * s * D

    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS, BLOCK], tl.float32)  # summed over the tokens once, at the end
    mixed = tl.zeros([ROWS, D], tl.float32)
    end = tl.minimum(split * chunk + chunk, s)
    for at in range(split * chunk, end - BLOCK + 1, BLOCK):
        tile = (at + token)[:, None] * D + column
        keys = tl.load(k + tile)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        values = tl.load(v + tile)
        mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
        total = total * shrink[:, None] + weights
        top = higher

    weight = tl.sum(total, 1)
    place = (pair * GROUP + row) * splits + split
    tl.store(part + place * D + column, (mixed / weight[:, None]).to(part.dtype.element_ty), mask=row < GROUP)
    if not ALONE:
        tl.store(height + place, (top + tl.log2(weight))[:, None], mask=row < GROUP)


@triton.jit(do_not_specialize=["splits"])
def combine(part, height, out, splits, WIDE: tl.constexpr, D: tl.constexpr):
    """The mean of one head's parts by their weights. WIDE: a power of two, at least `splits`."""
    head = tl.program_id(0)
    split = tl.arange(0, WIDE)
    column = tl.arange(0, D)
    heights = tl.load(height + head * splits + split, mask=split < splits, other=float("-inf"))
    parts = tl.load(part + (head * splits + split[:, None]) * D + column[None, :], mask=split[:, None] < splits, other=0.0)
    weights = tl.exp2(heights - tl.max(heights, 0))
    mean = tl.sum(parts * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out + head * D + column, mean.to(out.dtype.element_ty))


def launch(q, k, v, scale, config):
    b, heads, d = q.shape
    kv, s = k.shape[1:3]
    chunk = triton.cdiv(triton.cdiv(s, config.splits), config.block) * config.block
    splits = triton.cdiv(s, chunk)
    out = torch.empty_like(q)
    part, height = out, out  # a single part is the result
    if splits > 1:
        part = torch.empty((b * heads, splits, d), dtype=torch.float32, device=q.device)
        height = torch.empty((b * heads, splits), dtype=torch.float32, device=q.device)
    fixed = {"ALONE": splits == 1, "GROUP": heads // kv, "ROWS": 16, "D": d}
    tuned = {"BLOCK": config.block, "num_warps": config.warps, "num_stages": config.stages}
    attend[(b * kv, splits)](q, k, v, part, height, scale * LOG2E, s, chunk, splits, **fixed, **tuned)
    if splits > 1:
        wide = next(w for w in (4, 16, 64, 128) if w >= splits)
        combine[(b * heads,)](part, height, out, splits, WIDE=wide, D=d, num_warps=1 if wide == 4 else 4)
    return out


def decode_attention(q, k, v, scale):
    """`q` [b, heads, d], `k` and `v` [b, kv heads, s, d], contiguous -> [b, heads, d]."""
    return launch(q, k, v, scale, plan(q.shape[0], k.shape[1], k.shape[2]))
