"""Row softmax: what the kernel must compute, and on what."""

import torch


def inputs(case, rng):
    """x [m, n] in bfloat16. `wide` and `offset` are rows that a careless exp gets wrong."""
    here = {"generator": rng, "device": rng.device}
    x = torch.randn(case.m, case.n, dtype=torch.bfloat16, **here)
    if case.name == "wide":
        width = torch.rand(case.m, 1, **here) ** 3 * 25
        x = (x * width).clamp(-80, 80)
    elif case.name == "offset":
        x[::4] = 0
        x = x + (torch.rand(case.m, 1, **here) * 360 - 180)
    else:
        x *= 2
    return {"x": x.to(torch.bfloat16)}


def reference(x):
    """Softmax of each row in the type of x; computes in float32, or in float64 when given float64."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return torch.softmax(x.to(wide), dim=1).to(x.dtype)
