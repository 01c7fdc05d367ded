"""The residual add and the RMSNorm behind it, in place: residual += input, then input = residual / rms(residual) * weight."""

import torch


def inputs(case, rng):
    """input and residual [m, n], weight [n], all bfloat16, and Llama's epsilon."""
    size = 1e-3 if case.name == "small" else 1.0
    here = {"generator": rng, "device": rng.device, "dtype": torch.bfloat16}
    return {
        "input": torch.randn(case.m, case.n, **here) * size,
        "residual": torch.randn(case.m, case.n, **here) * size,
        "weight": 1 + torch.randn(case.n, **here) / 4,
        "epsilon": 1e-5,
    }


def reference(input, residual, weight, epsilon):
    """New input and new residual in their type; computes in float32, or in float64 when given float64."""
    wide = torch.promote_types(input.dtype, torch.float32)
    total = input.to(wide) + residual.to(wide)
    scale = torch.rsqrt(total.square().mean(dim=1, keepdim=True) + epsilon)
    return (total * scale * weight.to(wide)).to(input.dtype), total.to(residual.dtype)
