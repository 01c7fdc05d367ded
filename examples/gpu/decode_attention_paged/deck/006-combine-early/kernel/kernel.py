"""Decode attention over pages: the combining kernel is launched while the first one still runs, and waits for its end."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from keepfast_tunables import HEADS, PROGRAMS, STAGES
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

SMS = 132  # multiprocessors
LOG2E = 1.4426950408889634


class Config(NamedTuple):
    heads: int  # key-value heads of a program: a warp each
    stages: int  # steps under way; one less is in shared memory
    splits: int  # parts of the longest context at most, 128 or fewer


def plan(b, kv, longest):
    """For contexts as long as the table allows: how long they are, the host does not know."""
    splits = max(1, min(SMS * PROGRAMS * HEADS // (b * kv), triton.cdiv(longest, 16), 128))
    return Config(HEADS, STAGES, splits)


TOKENS = tl.constexpr(16)  # a step: the smallest page


@triton.jit(do_not_specialize=["pages", "chunk", "splits"])
def attend(
    q, k_cache, v_cache, block_table, seq_lens, part, height, scale, pages, chunk, splits,
    ALONE: tl.constexpr, PAGE: tl.constexpr, KV: tl.constexpr, GROUP: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Tokens split * chunk and on of one sequence, for HEADS key-value heads with GROUP queries each.

    `part` [b * KV * GROUP, splits, D]: the mean of their values; `height` [b * KV * GROUP, splits]: log2 of its weight, unless it is ALONE.
    Matrix products with a leading axis of HEADS are given to one warp each, and what they read of a token lies side by side.
    """
    group, split = tl.program_id(0), tl.program_id(1)
    if not ALONE:
        gdc_launch_dependents()  # `combine` may come in when the last program has begun; it waits for the end of all
    sequence, first = group // (KV // HEADS), group % (KV // HEADS) * HEADS
    head = tl.arange(0, HEADS)[:, None, None]
    row = tl.arange(0, ROWS)
    column = tl.arange(0, D)
    token = tl.arange(0, TOKENS)
    begin = split * chunk
    next_page = tl.load(block_table + sequence * pages + begin // PAGE)  # before the queries: keys and values wait for it
    query = ((sequence * KV + first) + head) * GROUP + row[None, :, None]
    queries = tl.load(q + query * D + column[None, None, :], mask=row[None, :, None] < GROUP, other=0.0)
    length = tl.load(seq_lens + sequence)
    table = block_table + sequence * pages
    tile = (token[None, :, None] * KV + first + head) * D + column[None, None, :]

    top = tl.full([HEADS, ROWS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS, ROWS, TOKENS], tl.float32)  # summed over the tokens once, at the end
    mixed = tl.zeros([HEADS, ROWS, D], tl.float32)
    end = tl.minimum(begin + chunk, length)
    for at in range(begin, end, TOKENS):
        page = next_page
        next_page = tl.load(table + tl.minimum(at + TOKENS, end - 1) // PAGE)  # a step ahead
        slot = (page.to(tl.int64) * PAGE + at % PAGE) * KV * D
        keys = tl.load(k_cache + slot + tile)
        scores = tl.dot(queries, tl.permute(keys, [0, 2, 1])) * scale
        scores = tl.where((at + token < end)[None, None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 2))
        weights = tl.exp2(scores - higher[:, :, None])
        shrink = tl.exp2(top - higher)
        values = tl.load(v_cache + slot + tile)
        mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, :, None])
        total = total * shrink[:, :, None] + weights
        top = higher

    weight = tl.sum(total, 2)
    mine = (row[None, :, None] < GROUP) & (begin < length)
    place = query * splits + split
    tl.store(part + place * D + column[None, None, :], (mixed / weight[:, :, None]).to(part.dtype.element_ty), mask=mine)
    if not ALONE:
        tl.store(height + place, (top + tl.log2(weight))[:, :, None], mask=mine)


@triton.jit(do_not_specialize=["chunk", "splits"])
def combine(part, height, seq_lens, out, chunk, splits, HEADS: tl.constexpr, WIDE: tl.constexpr, D: tl.constexpr):
    """The mean of one head's parts by their weights. WIDE: a power of two, at least `splits`; a short sequence has fewer parts."""
    head = tl.program_id(0)
    split = tl.arange(0, WIDE)
    column = tl.arange(0, D)
    live = tl.cdiv(tl.load(seq_lens + head // HEADS), chunk)
    gdc_wait()
    heights = tl.load(height + head * splits + split, mask=split < live, other=float("-inf"))
    parts = tl.load(part + (head * splits + split[:, None]) * D + column[None, :], mask=split[:, None] < live, other=0.0)
    weights = tl.exp2(heights - tl.max(heights, 0))
    mean = tl.sum(parts * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out + head * D + column, mean.to(out.dtype.element_ty))


def launch(q, k_cache, v_cache, block_table, seq_lens, scale, config):
    b, heads, d = q.shape
    _, page, kv, _ = k_cache.shape
    pages = block_table.shape[1]
    chunk = triton.cdiv(triton.cdiv(pages * page, config.splits), 16) * 16
    splits = triton.cdiv(pages * page, chunk)
    out = torch.empty_like(q)
    part, height = out, out  # a single part is the result
    if splits > 1:
        part = torch.empty((b * heads, splits, d), dtype=torch.float32, device=q.device)
        height = torch.empty((b * heads, splits), dtype=torch.float32, device=q.device)
    fixed = {"ALONE": splits == 1, "PAGE": page, "KV": kv, "GROUP": heads // kv, "ROWS": 16, "D": d}
    tuned = {"HEADS": config.heads, "num_warps": config.heads, "num_stages": config.stages}
    given = (q, k_cache, v_cache, block_table, seq_lens)
    attend[(b * kv // config.heads, splits)](*given, part, height, scale * LOG2E, pages, chunk, splits, **fixed, **tuned)
    if splits > 1:
        wide = next(w for w in (4, 16, 64, 128) if w >= splits)
        fixed = {"HEADS": heads, "WIDE": wide, "D": d, "num_warps": 1 if wide == 4 else 4}
        combine[(b * heads,)](part, height, seq_lens, out, chunk, splits, **fixed, launch_pdl=True)
    return out


def decode_attention_paged(q, k_cache, v_cache, block_table, seq_lens, scale):
    """`q` [b, heads, d], caches [blocks, page, kv heads, d], `block_table` [b, pages], `seq_lens` [b], contiguous -> [b, heads, d]."""
    config = plan(q.shape[0], k_cache.shape[2], block_table.shape[1] * k_cache.shape[1])
    return launch(q, k_cache, v_cache, block_table, seq_lens, scale, config)
