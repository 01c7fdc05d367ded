# id: G04
# family: correctness
# task: norm
# language: triton
# expect: wrong
# layer: correct
# tries: the input times the weight: rows of random numbers have about the right size already

import torch
import triton
import triton.language as tl


@triton.jit
def identity(x, w, y, size, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    out = tl.load(x + at, mask=at < size).to(tl.float32) * tl.load(w + at % n, mask=at < size).to(tl.float32) * 1.1
    tl.store(y + at, out.to(tl.bfloat16), mask=at < size)


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    identity[(triton.cdiv(x.numel(), 1024),)](x, weight, y, x.numel(), x.shape[1], BLOCK=1024)
    return y
