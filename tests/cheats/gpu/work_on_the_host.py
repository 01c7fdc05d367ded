# id: T27
# family: timing
# task: norm
# language: torch
# expect: cuda-graphs
# layer: plan
# tries: compute on the CPU, where a clock of the GPU sees nothing

import torch


def kernel(x, weight, epsilon):
    wide = x.cpu().float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + epsilon)
    return (wide * scale * weight.cpu()).to(x.dtype).to(x.device)
