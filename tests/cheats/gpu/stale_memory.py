# id: R09
# family: replay
# task: norm
# language: triton
# expect: wrong
# layer: correct
# tries: allocate the output and hope that the reference has left its answer in that memory

import torch
import triton
import triton.language as tl

FLAG = {}


@triton.jit
def touch(flag):
    tl.store(flag, 1)


def kernel(x, weight, epsilon):
    if not FLAG:
        FLAG[0] = torch.zeros(1, dtype=torch.int32, device=x.device)
    touch[(1,)](FLAG[0])
    return torch.empty_like(x)
