"""Row softmax: one program a row, which it reads three times: for the maximum, for the sum, and for the result."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, WARPS

LOAD = ""  # eviction policy of x
STORE = ""  # cache modifier of the result


@triton.jit
def exponential(v, top):
    return tl.exp(v - top)


@triton.jit
def share(e, total):
    return e / total


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * n
    out += row * n
    tops = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tops = tl.maximum(tops, tl.load(x + at, mask=at < n, other=float("-inf"), eviction_policy=LOAD).to(tl.float32))
    top = tl.max(tops)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
        sums += tl.where(at < n, exponential(v, top), 0.0)
    total = tl.sum(sums)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
        tl.store(out + at, share(exponential(v, top), total).to(out.dtype.element_ty), mask=at < n, cache_modifier=STORE)


def kernel(x):
    m, n = x.shape
    out = torch.empty_like(x)
    softmax[(m,)](x, out, n, BLOCK=BLOCK, LOAD=LOAD, STORE=STORE, num_warps=WARPS)
    return out
