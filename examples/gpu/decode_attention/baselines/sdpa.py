"""torch's scaled_dot_product_attention, which picks FlashAttention or cuDNN."""

import torch.nn.functional as F


def kernel(q, k, v, scale):
    return F.scaled_dot_product_attention(q[:, :, None], k, v, scale=scale, enable_gqa=True)[:, :, 0]
