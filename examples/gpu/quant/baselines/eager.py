"""One torch operation after the other, in float32."""

import torch


def kernel(x):
    blocks = x.to(torch.float32).unflatten(1, (-1, 128))
    scale = blocks.abs().amax(dim=2).clamp(min=1e-10) / 448
    return (blocks / scale.unsqueeze(2)).flatten(1).to(torch.float8_e4m3fn), scale
