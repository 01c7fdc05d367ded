"""Row softmax: what the kernel must compute, and on what."""

import numpy as np


def inputs(case, rng):
    """x[m, n] in float32. `wide` and `offset` are rows that a careless exp gets wrong."""
    x = rng.standard_normal((case.m, case.n), dtype=np.float32)
    if case.name == "wide":
        x *= (rng.uniform(0.0, 1.0, (case.m, 1)) ** 3 * 25.0).astype(np.float32)
        np.clip(x, -80.0, 80.0, out=x)
    elif case.name == "offset":
        x[::4] = 0.0
        x += rng.uniform(-80.0, 80.0, (case.m, 1)).astype(np.float32)
    else:
        x *= np.float32(2.0)
    return {"x": x}


def reference(x):
    """Softmax of each row, in the dtype of x."""
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)
