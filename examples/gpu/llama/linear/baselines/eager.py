"""What torch.nn.Linear calls: the library's matrix product."""

import torch.nn.functional as F


def kernel(input, weight):
    return F.linear(input, weight)
