"""RMSNorm over the last axis."""

import torch


def inputs(case, rng):
    """x [m, n] and weight [n], bfloat16."""
    x = torch.randn(case.m, case.n, generator=rng, device=rng.device, dtype=torch.float32)
    w = 1 + torch.randn(case.n, generator=rng, device=rng.device, dtype=torch.float32) / 4
    return {"x": x.to(torch.bfloat16), "weight": w.to(torch.bfloat16), "epsilon": 1e-6}


def reference(x, weight, epsilon):
    """y [m, n] in the dtype of x."""
    wide = x if x.dtype == torch.float64 else x.float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + epsilon)
    return (wide * scale * weight).to(x.dtype)
