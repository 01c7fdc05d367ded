"""The same operations, as torch.compile fuses them."""

import torch


def turned(x, cos, sin):
    low, high = x.float().chunk(2, dim=-1)
    return (x.float() * cos.float()[:, None] + torch.cat((-high, low), dim=-1) * sin.float()[:, None]).to(x.dtype)


@torch.compile(dynamic=False)
def rotary_cache(q, k, v, cos, sin, k_cache, v_cache, positions):
    rows, at = torch.arange(q.shape[0], device=q.device), positions.long()
    q.copy_(turned(q, cos, sin))
    k_cache[rows, :, at] = turned(k, cos, sin)
    v_cache[rows, :, at] = v


def kernel(q, k, v, cos, sin, k_cache, v_cache, positions):
    rotary_cache(q, k, v, cos, sin, k_cache, v_cache, positions)
