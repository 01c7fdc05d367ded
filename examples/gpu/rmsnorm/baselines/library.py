"""torch's own operators: an addition in place, a fused RMSNorm, and a copy, because the operator returns a fresh tensor."""

import torch


def kernel(input, residual, weight, epsilon):
    residual.add_(input)
    input.copy_(torch.nn.functional.rms_norm(residual, weight.shape, weight, epsilon))
