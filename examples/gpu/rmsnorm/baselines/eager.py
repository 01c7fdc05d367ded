"""As model code writes it: one torch operation after the other, in float32."""

import torch


def kernel(input, residual, weight, epsilon):
    total = input.to(torch.float32) + residual.to(torch.float32)
    residual.copy_(total)
    total = total * torch.rsqrt(total.square().mean(dim=1, keepdim=True) + epsilon)
    input.copy_(total * weight)
