# id: C01
# family: compliance
# task: norm
# language: torch
# expect: language, rule
# layer: rules
# tries: call the library

import torch


def kernel(x, weight, epsilon):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, epsilon)
