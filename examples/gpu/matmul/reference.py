"""out = gelu(x @ w.T + bias), with the tanh form of GELU."""

import torch


def inputs(case, rng):
    """x [m, k], w [n, k] and bias [n] in bfloat16, so that sums are of size 1."""
    here = {"generator": rng, "device": rng.device, "dtype": torch.bfloat16}
    return {
        "x": torch.randn(case.m, case.k, **here),
        "w": torch.randn(case.n, case.k, **here) * case.k**-0.5,
        "bias": torch.randn(case.n, **here) / 2,
    }


def reference(x, w, bias):
    """Computes in float32, or in float64 when given float64; the result has the type of x."""
    wide = torch.promote_types(x.dtype, torch.float32)
    total = torch.nn.functional.linear(x.to(wide), w.to(wide), bias.to(wide))
    return torch.nn.functional.gelu(total, approximate="tanh").to(x.dtype)
