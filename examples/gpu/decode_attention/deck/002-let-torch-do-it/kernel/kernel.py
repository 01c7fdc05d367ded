"""Decode attention: torch has a tuned kernel for this, so call it."""

import torch.nn.functional as F


def decode_attention(q, k, v, scale):
    """`q` [b, heads, d], `k` and `v` [b, kv heads, s, d], contiguous -> [b, heads, d]."""
    return F.scaled_dot_product_attention(q[:, :, None], k, v, scale=scale, enable_gqa=True)[:, :, 0]
