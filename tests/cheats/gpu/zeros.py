# id: G01
# family: correctness
# task: norm
# language: triton
# expect: wrong
# layer: correct
# tries: zeros everywhere

import torch
import triton
import triton.language as tl


@triton.jit
def zeros(x, w, y, size, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    out = tl.zeros((BLOCK,), tl.float32)
    tl.store(y + at, out.to(tl.bfloat16), mask=at < size)


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    zeros[(triton.cdiv(x.numel(), 1024),)](x, weight, y, x.numel(), x.shape[1], BLOCK=1024)
    return y
