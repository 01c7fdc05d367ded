"""Each row divided by its size. Rows are between 1e-4 and 10 large, so that epsilon and the range of half precision matter."""

import torch


def inputs(case, rng):
    """x [m, n], float32."""
    x = torch.randn(case.m, case.n, generator=rng, device=rng.device, dtype=torch.float32)
    size = 10 ** (5 * torch.rand(case.m, 1, generator=rng, device=rng.device, dtype=torch.float32) - 4)
    return {"x": x * size, "epsilon": 1e-6}


def reference(x, epsilon):
    """y [m, n] in the dtype of x."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)
