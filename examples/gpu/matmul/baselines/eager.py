"""A matrix product of cuBLAS, and GELU as a kernel of its own."""

import torch


def kernel(x, w, bias):
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, bias), approximate="tanh")
