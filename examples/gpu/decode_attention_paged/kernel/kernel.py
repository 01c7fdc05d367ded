"""Decode attention over pages, plain: one program for each sequence and key-value head walks through the whole context."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, STAGES, WARPS


@triton.jit
def attend(
    q, k_cache, v_cache, block_table, seq_lens, out, scale, pages,
    PAGE: tl.constexpr, KV: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`q` and `out` [b, KV * GROUP, D], caches [blocks, PAGE, KV, D], `block_table` [b, pages]. A head's queries are padded to ROWS."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, D)[None, :]
    token = tl.arange(0, BLOCK)
    place = ((sequence * KV + head) * GROUP + row) * D + column
    queries = tl.load(q + place, mask=row < GROUP, other=0.0)
    length = tl.load(seq_lens + sequence)

    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, D], tl.float32)
    for at in range(0, length, BLOCK):
        here = at + token
        inside = here < length
        page = tl.load(block_table + sequence * pages + here // PAGE, mask=inside, other=0)
        slot = page.to(tl.int64) * PAGE + here % PAGE
        tile = (slot[:, None] * KV + head) * D + column
        keys = tl.load(k_cache + tile, mask=inside[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        values = tl.load(v_cache + tile, mask=inside[:, None], other=0.0)
        mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
        total = total * shrink + tl.sum(weights, 1)
        top = higher
    tl.store(out + place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=row < GROUP)


def decode_attention_paged(q, k_cache, v_cache, block_table, seq_lens, scale):
    """`q` [b, heads, d], caches [blocks, page, kv heads, d], `block_table` [b, pages], `seq_lens` [b], contiguous -> [b, heads, d]."""
    b, heads, d = q.shape
    page, kv = k_cache.shape[1:3]
    out = torch.empty_like(q)
    fixed = {"PAGE": page, "KV": kv, "GROUP": heads // kv, "ROWS": 16, "D": d}
    tuned = {"BLOCK": BLOCK, "num_warps": WARPS, "num_stages": STAGES}
    attend[(b, kv)](q, k_cache, v_cache, block_table, seq_lens, out, scale, block_table.shape[1], **fixed, **tuned)
    return out
