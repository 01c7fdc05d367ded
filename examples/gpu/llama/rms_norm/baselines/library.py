"""torch's own fused operator."""

import torch


def kernel(input, weight, epsilon):
    return torch.nn.functional.rms_norm(input, weight.shape, weight, epsilon)
