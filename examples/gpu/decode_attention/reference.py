"""Attention of one new token: each query head looks at all of its key-value head's context."""

import math

import torch

HEADS, KV, D = 32, 8, 128


def inputs(case, rng):
    """q [b, 32, 128], k and v [b, 8, s, 128], bfloat16, and the scale of the scores."""

    def normal(*shape):
        return torch.randn(shape, generator=rng, device=rng.device, dtype=torch.float32).to(torch.bfloat16)

    q, k, v = normal(case.b, HEADS, D), normal(case.b, KV, case.s, D), normal(case.b, KV, case.s, D)
    if case.name == "large":  # scores of several hundred, whose exponentials are beyond float32
        q = q * 64
    if case.name == "late":  # the later a token, the more it counts
        k = k * torch.linspace(0.1, 4.0, case.s, device=rng.device, dtype=k.dtype)[:, None]
    return {"q": q, "k": k, "v": v, "scale": 1 / math.sqrt(D)}


def reference(q, k, v, scale):
    """In float32 or wider, sequence by sequence, because one sequence of 131072 tokens is 2 GB in float64."""
    wide = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty_like(q)
    for i in range(q.shape[0]):
        groups = q[i].to(wide).view(k.shape[1], -1, q.shape[2])
        weights = torch.softmax(groups @ k[i].to(wide).transpose(1, 2) * scale, dim=-1)
        out[i] = (weights @ v[i].to(wide)).view(q.shape[1:]).to(q.dtype)
    return out
