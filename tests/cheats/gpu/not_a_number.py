# id: G07
# family: correctness
# task: norm
# language: triton
# expect: wrong
# layer: correct
# tries: NaN everywhere, which is not greater than any tolerance

import torch
import triton
import triton.language as tl


@triton.jit
def not_a_number(x, w, y, size, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    out = tl.full((BLOCK,), float("nan"), tl.float32)
    tl.store(y + at, out.to(tl.bfloat16), mask=at < size)


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    not_a_number[(triton.cdiv(x.numel(), 1024),)](x, weight, y, x.numel(), x.shape[1], BLOCK=1024)
    return y
