"""RMSNorm of rows: one program a row, in registers; the weight is on its way while the sum is formed."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import WARPS

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
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0, eviction_policy=LOAD).to(tl.float32)
    w = tl.load(weight + at, mask=at < n, other=0.0, eviction_policy="evict_last")
    total = tl.sum(v * v)
    scale = scale_of(total, n, epsilon)
    tl.store(out + at, (v * scale * w.to(tl.float32)).to(out.dtype.element_ty), mask=at < n, cache_modifier=STORE)


def kernel(input, weight, epsilon):
    m, n = input.shape
    out = torch.empty_like(input)
    block = triton.next_power_of_2(n)
    rms_norm[(m,)](input, weight, out, n, epsilon, BLOCK=block, LOAD=LOAD, STORE=STORE, num_warps=WARPS)
    return out
