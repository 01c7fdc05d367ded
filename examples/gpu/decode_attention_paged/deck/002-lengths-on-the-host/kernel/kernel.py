"""Decode attention over pages: split for the longest context that there really is: its length is on the device, so ask for it."""

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
    splits: int  # parts of the longest context at most, 128 or fewer


def plan(b, kv, longest):
    """For contexts as long as the longest."""
    return Config(BLOCK, WARPS, STAGES, max(1, min(SMS * PROGRAMS // (b * kv), triton.cdiv(longest, BLOCK), 128)))


@triton.jit(do_not_specialize=["pages", "chunk", "splits"])
def attend(
    q, k_cache, v_cache, block_table, seq_lens, part, height, scale, pages, chunk, splits,
    ALONE: tl.constexpr, PAGE: tl.constexpr, KV: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Tokens split * chunk and on of one sequence, for the GROUP queries of one key-value head.

    `part` [b * KV * GROUP, splits, D]: the mean of their values; `height` [b * KV * GROUP, splits]: log2 of its weight, unless it is ALONE.
    """
    pair, split = tl.program_id(0), tl.program_id(1)
    sequence, head = pair // KV, pair % KV
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, D)[None, :]
    token = tl.arange(0, BLOCK)
    queries = tl.load(q + (pair * GROUP + row) * D + column, mask=row < GROUP, other=0.0)
    length = tl.load(seq_lens + sequence)

    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS, BLOCK], tl.float32)  # summed over the tokens once, at the end
    mixed = tl.zeros([ROWS, D], tl.float32)
    end = tl.minimum(split * chunk + chunk, length)
    for at in range(split * chunk, end, BLOCK):
        here = at + token
        inside = here < end
        page = tl.load(block_table + sequence * pages + here // PAGE, mask=inside, other=0)
        slot = page.to(tl.int64) * PAGE + here % PAGE
        tile = (slot[:, None] * KV + head) * D + column
        keys = tl.load(k_cache + tile, mask=inside[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        values = tl.load(v_cache + tile, mask=inside[:, None], other=0.0)
        mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
        total = total * shrink[:, None] + weights
        top = higher

    weight = tl.sum(total, 1)
    place = (pair * GROUP + row) * splits + split
    live = (row < GROUP) & (split * chunk < length)
    tl.store(part + place * D + column, (mixed / weight[:, None]).to(part.dtype.element_ty), mask=live)
    if not ALONE:
        tl.store(height + place, (top + tl.log2(weight))[:, None], mask=live)


@triton.jit(do_not_specialize=["chunk", "splits"])
def combine(part, height, seq_lens, out, chunk, splits, HEADS: tl.constexpr, WIDE: tl.constexpr, D: tl.constexpr):
    """The mean of one head's parts by their weights. WIDE: a power of two, at least `splits`; a short sequence has fewer parts."""
    head = tl.program_id(0)
    split = tl.arange(0, WIDE)
    column = tl.arange(0, D)
    live = tl.cdiv(tl.load(seq_lens + head // HEADS), chunk)
    heights = tl.load(height + head * splits + split, mask=split < live, other=float("-inf"))
    parts = tl.load(part + (head * splits + split[:, None]) * D + column[None, :], mask=split[:, None] < live, other=0.0)
    weights = tl.exp2(heights - tl.max(heights, 0))
    mean = tl.sum(parts * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out + head * D + column, mean.to(out.dtype.element_ty))


def launch(q, k_cache, v_cache, block_table, seq_lens, scale, config):
    b, heads, d = q.shape
    page, kv = k_cache.shape[1:3]
    pages = block_table.shape[1]
    longest = int(seq_lens.max())
    chunk = triton.cdiv(triton.cdiv(longest, config.splits), config.block) * config.block
    splits = triton.cdiv(longest, chunk)
    out = torch.empty_like(q)
    part, height = out, out  # a single part is the result
    if splits > 1:
        part = torch.empty((b * heads, splits, d), dtype=torch.float32, device=q.device)
        height = torch.empty((b * heads, splits), dtype=torch.float32, device=q.device)
    fixed = {"ALONE": splits == 1, "PAGE": page, "KV": kv, "GROUP": heads // kv, "ROWS": 16, "D": d}
    tuned = {"BLOCK": config.block, "num_warps": config.warps, "num_stages": config.stages}
    given = (q, k_cache, v_cache, block_table, seq_lens)
    attend[(b * kv, splits)](*given, part, height, scale * LOG2E, pages, chunk, splits, **fixed, **tuned)
    if splits > 1:
        wide = next(w for w in (4, 16, 64, 128) if w >= splits)
        fixed = {"HEADS": heads, "WIDE": wide, "D": d, "num_warps": 1 if wide == 4 else 4}
        combine[(b * heads,)](part, height, seq_lens, out, chunk, splits, **fixed)
    return out


def decode_attention_paged(q, k_cache, v_cache, block_table, seq_lens, scale):
    """`q` [b, heads, d], caches [blocks, page, kv heads, d], `block_table` [b, pages], `seq_lens` [b], contiguous -> [b, heads, d]."""
    config = plan(q.shape[0], k_cache.shape[2], int(seq_lens.max()))
    return launch(q, k_cache, v_cache, block_table, seq_lens, scale, config)
