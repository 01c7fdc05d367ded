# id: C07
# family: compliance
# task: norm
# language: torch
# expect: language, rule, hang
# layer: rules, plan
# tries: let torch.compile write the kernel

import torch


@torch.compile
def kernel(x, weight, epsilon):
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + epsilon) * weight.float()).to(x.dtype)
