"""The BLAS that NumPy was built with, on as many threads as the task allows."""

import numpy as np


def kernel(a, b, out):
    np.matmul(a, b, out=out)
