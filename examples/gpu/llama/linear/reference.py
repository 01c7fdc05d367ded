"""What torch.nn.Linear does without a bias: out = input @ weight.T, for a few rows."""

import torch


def inputs(case, rng):
    """input [m, k] and weight [n, k] in bfloat16, so that sums are of size 1."""
    here = {"generator": rng, "device": rng.device, "dtype": torch.bfloat16}
    return {"input": torch.randn(case.m, case.k, **here), "weight": torch.randn(case.n, case.k, **here) * case.k**-0.5}


def reference(input, weight):
    """In the type of input; sums in float32, or in float64 when given float64."""
    wide = torch.promote_types(input.dtype, torch.float32)
    return torch.nn.functional.linear(input.to(wide), weight.to(wide)).to(input.dtype)
