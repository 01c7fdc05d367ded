"""Decode attention: a program for each query head, four times as many programs. The cache serves what four of them read."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, WARPS


@triton.jit
def attend(q, k, v, out, scale, s, GROUP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """`q` and `out` [heads, D], `k` and `v` [heads / GROUP, s, D]. Products by sums: one query is too thin for a matrix product."""
    head = tl.program_id(0)
    column = tl.arange(0, D)
    token = tl.arange(0, BLOCK)
    query = tl.load(q + head * D + column).to(tl.float32) * scale
    k += (head // GROUP).to(tl.int64) * s * D
    v += (head // GROUP).to(tl.int64) * s * D

    top, total = float("-inf"), 0.0
    mixed = tl.zeros([D], tl.float32)
    for at in range(0, s, BLOCK):
        inside = at + token < s
        tile = (at + token)[:, None] * D + column[None, :]
        keys = tl.load(k + tile, mask=inside[:, None], other=0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(keys * query[None, :], 1), float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 0))
        weights = tl.exp(scores - higher)
        shrink = tl.exp(top - higher)
        values = tl.load(v + tile, mask=inside[:, None], other=0.0).to(tl.float32)
        mixed = mixed * shrink + tl.sum(values * weights[:, None], 0)
        total = total * shrink + tl.sum(weights, 0)
        top = higher
    tl.store(out + head * D + column, (mixed / total).to(out.dtype.element_ty))


def decode_attention(q, k, v, scale):
    """`q` [b, heads, d], `k` and `v` [b, kv heads, s, d], contiguous -> [b, heads, d]."""
    b, heads, d = q.shape
    kv, s = k.shape[1:3]
    out = torch.empty_like(q)
    attend[(b * heads,)](q, k, v, out, scale, s, GROUP=heads // kv, D=d, BLOCK=BLOCK, num_warps=WARPS)
    return out
