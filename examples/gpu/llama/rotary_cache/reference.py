"""A decode step's queries and keys are turned by their position; keys and values then go into the static cache."""

import torch

HEADS, KV, D = 32, 8, 128
THETA = 500000.0


def inputs(case, rng):
    """q [b, 32, 128], k and v [b, 8, 128], cos and sin [b, 128] with both halves alike, the caches [b, 8, capacity, 128], all bfloat16;
    positions [b], int32, each within the cache. cos and sin may be of a later place than the cache has, so that angles are large."""
    here = {"generator": rng, "device": rng.device}

    def normal(*shape):
        return torch.randn(shape, dtype=torch.float32, **here).to(torch.bfloat16)

    turns = THETA ** -(torch.arange(0, D, 2, device=rng.device, dtype=torch.float32) / D)
    place = torch.randint(0, 131072, (case.b, 1), **here)
    angle = (place * turns).repeat(1, 2)
    return {
        "q": normal(case.b, HEADS, D),
        "k": normal(case.b, KV, D),
        "v": normal(case.b, KV, D),
        "cos": angle.cos().to(torch.bfloat16),
        "sin": angle.sin().to(torch.bfloat16),
        "k_cache": normal(case.b, KV, case.capacity, D),
        "v_cache": normal(case.b, KV, case.capacity, D),
        "positions": torch.randint(0, case.capacity, (case.b,), **here).to(torch.int32),
    }


def turned(x, cos, sin):
    """In float32 or wider, rounded once."""
    wide = torch.promote_types(x.dtype, torch.float32)
    low, high = x.to(wide).chunk(2, dim=-1)
    made = x.to(wide) * cos.to(wide)[:, None] + torch.cat((-high, low), dim=-1) * sin.to(wide)[:, None]
    return made.to(x.dtype)


def reference(q, k, v, cos, sin, k_cache, v_cache, positions):
    """New queries and caches."""
    rows, at = torch.arange(q.shape[0], device=q.device), positions.long()
    keys, values = k_cache.clone(), v_cache.clone()
    keys[rows, :, at] = turned(k, cos, sin)
    values[rows, :, at] = v
    return turned(q, cos, sin), keys, values
