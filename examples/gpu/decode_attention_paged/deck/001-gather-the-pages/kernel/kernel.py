"""Decode attention over pages: gather the pages, then torch has a tuned kernel for what remains."""

import torch
import torch.nn.functional as F


def decode_attention_paged(q, k_cache, v_cache, block_table, seq_lens, scale):
    """`q` [b, heads, d], caches [blocks, page, kv heads, d], `block_table` [b, pages], `seq_lens` [b], contiguous -> [b, heads, d]."""
    k, v = (cache[block_table].flatten(1, 2).transpose(1, 2) for cache in (k_cache, v_cache))
    inside = torch.arange(k.shape[2], device=q.device) < seq_lens[:, None]
    return F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=inside[:, None, None], scale=scale, enable_gqa=True)[:, :, 0]
