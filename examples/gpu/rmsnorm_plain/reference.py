"""RMSNorm of each row: out = input / rms(input) * weight."""

import torch


def inputs(case, rng):
    """input [m, n], weight [n], both bfloat16, and epsilon."""
    size = 1e-3 if case.name == "small" else 1.0
    here = {"generator": rng, "device": rng.device, "dtype": torch.bfloat16}
    return {
        "input": torch.randn(case.m, case.n, **here) * size,
        "weight": 1 + torch.randn(case.n, **here) / 4,
        "epsilon": 1e-6,
    }


def reference(input, weight, epsilon):
    """Computes in float32, or in float64 when given float64; the result has the type of input."""
    wide = torch.promote_types(input.dtype, torch.float32)
    x = input.to(wide)
    scale = torch.rsqrt(x.square().mean(dim=1, keepdim=True) + epsilon)
    return (x * scale * weight.to(wide)).to(input.dtype)
