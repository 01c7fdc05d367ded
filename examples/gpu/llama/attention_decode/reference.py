"""Attention of one new token over a static cache: of each sequence's keys and values the first `lengths` count."""

import math

import torch

HEADS, KV, D = 32, 8, 128


def inputs(case, rng):
    """q [b, 32, 128], k and v [b, 8, capacity, 128], bfloat16, filled beyond the lengths as well; lengths [b], int32; the scale.

    `s` is at most the capacity. `tokens` is the sum of the lengths: all of them s, or a ramp from s / b to s in random order.
    """
    here = {"generator": rng, "device": rng.device}
    s = min(case.s, case.capacity)
    ramp = [-(-s * (i + 1) // case.b) for i in range(case.b)]
    lengths = [s] * case.b if case.tokens == case.b * s else ramp
    if sum(lengths) != case.tokens:
        raise ValueError(f"tokens must be {case.b * s}, or {sum(ramp)} for a ramp of lengths")
    order = torch.randperm(case.b, **here)

    def normal(*shape):
        return torch.randn(shape, dtype=torch.float32, **here).to(torch.bfloat16)

    q, k, v = normal(case.b, HEADS, D), normal(case.b, KV, case.capacity, D), normal(case.b, KV, case.capacity, D)
    return {
        "q": q * 64 if case.name == "large" else q,  # scores of several hundred, whose exponentials are beyond float32
        "k": k,
        "v": v,
        "lengths": torch.tensor(lengths, dtype=torch.int32, device=rng.device)[order],
        "scale": 1 / math.sqrt(D),
    }


def reference(q, k, v, lengths, scale):
    """In float32 or wider, sequence by sequence, because one sequence of 131072 tokens is 2 GB in float64."""
    wide = torch.promote_types(q.dtype, torch.float32)
    beyond = torch.arange(k.shape[2], device=q.device)[None, :] >= lengths[:, None]
    out = torch.empty_like(q)
    for i in range(q.shape[0]):
        groups = q[i].to(wide).view(k.shape[1], -1, q.shape[2])
        scores = (groups @ k[i].to(wide).transpose(1, 2) * scale).masked_fill(beyond[i], -math.inf)
        out[i] = (torch.softmax(scores, dim=-1) @ v[i].to(wide)).view(q.shape[1:]).to(q.dtype)
    return out
