"""torch's operator, as torch.compile writes it."""

import torch


@torch.compile(dynamic=False)
def _softmax(x):
    return torch.softmax(x, dim=1)


def kernel(x):
    return _softmax(x)
