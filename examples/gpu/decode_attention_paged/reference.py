"""Attention of one new token over a paged cache: a table says in which pages each sequence's context lies."""

import math

import torch

HEADS, KV, D = 32, 8, 128
SPARE = 3  # pages that belong to nobody


def inputs(case, rng):
    """q [b, 32, 128], k_cache and v_cache [blocks, page, 8, 128], bfloat16; block_table [b, pages] and seq_lens [b], int32; the scale.

    Pages are dealt at random. `tokens` is the sum of the lengths: all of them s, or a ramp from s / b to s in random order.
    """
    here = {"generator": rng, "device": rng.device}
    pages = -(-case.s // case.page)
    blocks = case.b * pages + SPARE
    ramp = [-(-case.s * (i + 1) // case.b) for i in range(case.b)]
    lengths = [case.s] * case.b if case.tokens == case.b * case.s else ramp
    if sum(lengths) != case.tokens:
        raise ValueError(f"tokens must be {case.b * case.s}, or {sum(ramp)} for a ramp of lengths")
    order = torch.randperm(case.b, **here)

    def normal(*shape):
        return torch.randn(shape, dtype=torch.float32, **here).to(torch.bfloat16)

    q, k_cache, v_cache = normal(case.b, HEADS, D), normal(blocks, case.page, KV, D), normal(blocks, case.page, KV, D)
    if case.name == "large":  # scores of several hundred, whose exponentials are beyond float32
        q = q * 64
    return {
        "q": q,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "block_table": torch.randperm(blocks, **here)[: case.b * pages].to(torch.int32).view(case.b, pages),
        "seq_lens": torch.tensor(lengths, dtype=torch.int32, device=rng.device)[order],
        "scale": 1 / math.sqrt(D),
    }


def reference(q, k_cache, v_cache, block_table, seq_lens, scale):
    """In float32 or wider, sequence by sequence, so that only one context is gathered at a time."""
    wide = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty_like(q)
    for i in range(q.shape[0]):
        k, v = (cache[block_table[i].long()].flatten(0, 1).transpose(0, 1).to(wide) for cache in (k_cache, v_cache))
        groups = q[i].to(wide).view(k.shape[0], -1, q.shape[2])
        beyond = torch.arange(k.shape[1], device=q.device) >= seq_lens[i]
        scores = (groups @ k.transpose(1, 2) * scale).masked_fill(beyond, -math.inf)
        out[i] = (torch.softmax(scores, dim=-1) @ v).view(q.shape[1:]).to(q.dtype)
    return out
