"""Decode attention, plain: one program for each sequence and key-value head walks through the whole context."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, STAGES, WARPS


@triton.jit
def attend(q, k, v, out, scale, s, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """`q` and `out` [pairs, GROUP, D], `k` and `v` [pairs, s, D]. A pair's queries are padded to ROWS, which a matrix product needs."""
    pair = tl.program_id(0)
    row = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, D)[None, :]
    token = tl.arange(0, BLOCK)
    place = pair * GROUP * D + row * D + column
    queries = tl.load(q + place, mask=row < GROUP, other=0.0)
    k += pair.to(tl.int64) * s * D
    v += pair.to(tl.int64) * s * D

    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, D], tl.float32)
    for at in range(0, s, BLOCK):
        inside = at + token < s
        tile = (at + token)[:, None] * D + column
        keys = tl.load(k + tile, mask=inside[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        values = tl.load(v + tile, mask=inside[:, None], other=0.0)
        mixed = tl.dot(weights.to(values.dtype), values, mixed * shrink[:, None])
        total = total * shrink + tl.sum(weights, 1)
        top = higher
    tl.store(out + place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=row < GROUP)


def decode_attention(q, k, v, scale):
    """`q` [b, heads, d], `k` and `v` [b, kv heads, s, d], contiguous -> [b, heads, d]."""
    b, heads, d = q.shape
    kv, s = k.shape[1:3]
    out = torch.empty_like(q)
    fixed = {"GROUP": heads // kv, "ROWS": 16, "D": d}
    attend[(b * kv,)](q, k, v, out, scale, s, **fixed, BLOCK=BLOCK, num_warps=WARPS, num_stages=STAGES)
    return out
