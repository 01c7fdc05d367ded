"""What a gated MLP does between its matrix products: silu(gate) * up."""

import torch


def inputs(case, rng):
    """gate and up [m, n], bfloat16."""
    size = 200.0 if case.name == "large" else 2.0
    here = {"generator": rng, "device": rng.device, "dtype": torch.bfloat16}
    return {"gate": torch.randn(case.m, case.n, **here) * size, "up": torch.randn(case.m, case.n, **here)}


def reference(gate, up):
    """In the type of gate; computes in float32, or in float64 when given float64."""
    wide = gate.to(torch.promote_types(gate.dtype, torch.float32))
    return (wide * torch.sigmoid(wide) * up.to(wide.dtype)).to(gate.dtype)
