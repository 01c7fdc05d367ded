"""RMSNorm of rows: a program takes ROWS rows at a time, so that one pair of barriers serves several sums."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import EACH, LOAD, REGISTERS, ROWS, STORE


@triton.jit
def rms_norm(x, weight, out, m, n, epsilon, ROWS: tl.constexpr, BLOCK: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    at = row.to(tl.int64) * n + column
    inside = (row < m) & (column < n)
    v = tl.load(x + at, mask=inside, other=0.0, eviction_policy=LOAD).to(tl.float32)
    w = tl.load(weight + column, mask=column < n, other=0.0, eviction_policy="evict_last")
    total = tl.sum(v * v, axis=1, keep_dims=True)
    scale = tl.rsqrt(total / n + epsilon)
    tl.store(out + at, (v * scale * w.to(tl.float32)).to(out.dtype.element_ty), mask=inside, cache_modifier=STORE)


def kernel(input, weight, epsilon):
    m, n = input.shape
    out = torch.empty_like(input)
    block = triton.next_power_of_2(n)
    options = {"ROWS": ROWS, "BLOCK": block, "LOAD": LOAD, "STORE": STORE, "num_warps": max(1, min(32, ROWS * block // (32 * EACH)))}
    rms_norm[(triton.cdiv(m, ROWS),)](input, weight, out, m, n, epsilon, maxnreg=REGISTERS or None, **options)
    return out
