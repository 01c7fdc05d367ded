"""LlamaRMSNorm: input / rms(input) * weight, row by row."""

import torch


def inputs(case, rng):
    """input [m, n], weight [n], bfloat16, and Llama's epsilon."""
    size = 1e-3 if case.name == "small" else 1.0
    here = {"generator": rng, "device": rng.device, "dtype": torch.bfloat16}
    return {
        "input": torch.randn(case.m, case.n, **here) * size,
        "weight": 1 + torch.randn(case.n, **here) / 4,
        "epsilon": 1e-5,
    }


def reference(input, weight, epsilon):
    """In the type of input; computes in float32, or in float64 when given float64."""
    wide = input.to(torch.promote_types(input.dtype, torch.float32))
    scale = torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + epsilon)
    return (wide * scale * weight.to(wide.dtype)).to(input.dtype)
