"""As transformers does it: silu, then a product, both rounded to bfloat16."""

import torch.nn.functional as F


def kernel(gate, up):
    return F.silu(gate) * up
