"""Matrix product a @ b."""

import numpy as np


def inputs(case, rng):
    """a[m, k] and b[k, n], float32, standard normal."""
    return {
        "a": rng.standard_normal((case.m, case.k), dtype=np.float32),
        "b": rng.standard_normal((case.k, case.n), dtype=np.float32),
    }


def reference(a, b):
    """a @ b in the dtype of a and b."""
    return a @ b
