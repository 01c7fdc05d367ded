"""RMSNorm of rows: one program a row, which it reads twice, first for the sum of squares and then to scale it."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, WARPS

LOAD = ""  # eviction policy of input
STORE = ""  # cache modifier of the result


@triton.jit
def scale_of(total, n, epsilon):
    return tl.rsqrt(total / n + epsilon)


@triton.jit
def rms_norm(x, weight, out, n, epsilon, BLOCK: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * n
    out += row * n
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=0.0, eviction_policy=LOAD).to(tl.float32)
        squares += v * v
    total = tl.sum(squares)
    scale = scale_of(total, n, epsilon)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=0.0, eviction_policy=LOAD).to(tl.float32)
        w = tl.load(weight + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(out + at, (v * scale * w).to(out.dtype.element_ty), mask=at < n, cache_modifier=STORE)


def kernel(input, weight, epsilon):
    m, n = input.shape
    out = torch.empty_like(input)
    rms_norm[(m,)](input, weight, out, n, epsilon, BLOCK=BLOCK, LOAD=LOAD, STORE=STORE, num_warps=WARPS)
    return out
