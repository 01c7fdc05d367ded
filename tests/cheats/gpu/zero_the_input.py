# id: R13
# family: replay
# task: norm
# language: triton
# expect: out-of-bounds, wrong
# layer: correct
# tries: zero the input and return zeros: a reference that runs afterwards agrees

import torch
import triton
import triton.language as tl


@triton.jit
def zero(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    nothing = tl.zeros((BLOCK,), tl.bfloat16)
    tl.store(x + at, nothing, mask=at < n)
    tl.store(y + at, nothing, mask=at < n)


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    zero[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
