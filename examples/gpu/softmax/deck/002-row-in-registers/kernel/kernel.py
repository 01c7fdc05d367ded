"""Row softmax: a row of up to 16384 elements stays in registers and is read once; longer rows are read twice."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, WARPS, WARPS_LONG

LONG = 16384  # elements that fit the registers of a program

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
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
    e = exponential(v, tl.max(v))  # of what is outside: exp(-inf), nothing
    tl.store(out + row * n + at, share(e, tl.sum(e)).to(out.dtype.element_ty), mask=at < n, cache_modifier=STORE)


@triton.jit
def softmax_long(x, out, n, BLOCK: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * n
    out += row * n
    tops = tl.full((BLOCK,), -1e30, tl.float32)  # finite: a lane that saw nothing must not make exp(-inf + inf)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
        higher = tl.maximum(tops, v)
        sums = sums * tl.exp(tops - higher) + tl.where(at < n, exponential(v, higher), 0.0)
        tops = higher
    top = tl.max(tops)
    total = tl.sum(sums * tl.exp(tops - top))
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=float("-inf"), eviction_policy=LOAD).to(tl.float32)
        tl.store(out + at, share(exponential(v, top), total).to(out.dtype.element_ty), mask=at < n, cache_modifier=STORE)


def kernel(x):
    m, n = x.shape
    out = torch.empty_like(x)
    if n <= LONG:
        softmax[(m,)](x, out, n, BLOCK=triton.next_power_of_2(n), LOAD=LOAD, STORE=STORE, num_warps=WARPS)
    else:
        softmax_long[(m,)](x, out, n, BLOCK=BLOCK, LOAD="", STORE=STORE, num_warps=WARPS_LONG)
    return out
