"""The same operations in one kernel, as torch.compile fuses them."""

import torch


@torch.compile(dynamic=False)
def _quant(x):
    blocks = x.to(torch.float32).unflatten(1, (-1, 128))
    scale = blocks.abs().amax(dim=2).clamp(min=1e-10) / 448
    return (blocks / scale.unsqueeze(2)).flatten(1).to(torch.float8_e4m3fn), scale


def kernel(x):
    return _quant(x)
