# id: C02
# family: compliance
# task: norm
# language: triton
# expect: language, rule
# layer: rules
# tries: one element by its own kernel, everything by the library

import torch
import triton
import triton.language as tl


@triton.jit
def leaf(x, y):
    tl.store(y, tl.load(x))


def kernel(x, weight, epsilon):
    y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, epsilon)
    leaf[(1,)](y, torch.empty_like(y))
    return y
