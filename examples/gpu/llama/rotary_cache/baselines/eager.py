"""As transformers does it: apply_rotary_pos_emb in bfloat16, and a write by index, one torch operation after the other."""

import torch


def turned(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat((-high, low), dim=-1) * sin[:, None]


def kernel(q, k, v, cos, sin, k_cache, v_cache, positions):
    rows, at = torch.arange(q.shape[0], device=q.device), positions.long()
    q.copy_(turned(q, cos, sin))
    k_cache[rows, :, at] = turned(k, cos, sin)
    v_cache[rows, :, at] = v
