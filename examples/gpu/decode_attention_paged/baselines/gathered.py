"""Pages gathered into contexts, then torch's scaled_dot_product_attention with a mask."""

import torch
import torch.nn.functional as F


def kernel(q, k_cache, v_cache, block_table, seq_lens, scale):
    k, v = (cache[block_table].flatten(1, 2).transpose(1, 2) for cache in (k_cache, v_cache))
    inside = torch.arange(k.shape[2], device=q.device) < seq_lens[:, None]
    return F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=inside[:, None, None], scale=scale, enable_gqa=True)[:, :, 0]
