import torch


def kernel(x, weight, epsilon):
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, epsilon)
