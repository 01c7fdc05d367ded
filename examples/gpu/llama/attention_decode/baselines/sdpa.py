"""torch's scaled_dot_product_attention, which is told that queries share keys and values (`enable_gqa`)."""

import torch
import torch.nn.functional as F


def kernel(q, k, v, lengths, scale):
    allowed = (torch.arange(k.shape[2], device=q.device)[None, :] < lengths[:, None])[:, None, None]
    return F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=allowed, scale=scale, enable_gqa=True)[:, :, 0]
