"""residual += input; input = RMSNorm(residual) * weight."""

import torch


def inputs(case, rng):
    """input, residual [m, n] and weight [n], bfloat16."""

    def draw(*shape):
        return torch.randn(*shape, generator=rng, device=rng.device, dtype=torch.float32).to(torch.bfloat16)

    return {"input": draw(case.m, case.n), "residual": draw(case.m, case.n), "weight": 1 + draw(case.n) / 4, "epsilon": 1e-6}


def reference(input, residual, weight, epsilon):
    """New input and new residual."""
    total = input + residual
    wide = total if total.dtype == torch.float64 else total.float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + epsilon)
    return (wide * scale * weight).to(total.dtype), total
