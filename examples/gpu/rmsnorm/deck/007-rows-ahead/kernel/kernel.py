"""Fused add + RMSNorm in place: for many rows, as many programs as the card holds, each with its next rows on their way (cp.async).

A program never looks ahead at a row that another one writes: rows are dealt out, and each is read and written by one program only.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import EACH, FEW, LOAD, STAGES, STORE, THREADS, WARPS_FEW


@triton.jit
def add_rms_norm(x, residual, weight, m, n, epsilon, BLOCK: tl.constexpr, STAGES: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    w = tl.load(weight + at, mask=inside, other=0.0, eviction_policy="evict_last")
    for row in tl.range(tl.program_id(0), m, tl.num_programs(0), num_stages=STAGES):
        first = tl.cast(row, tl.int64) * n
        a = tl.load(x + first + at, mask=inside, other=0.0, eviction_policy=LOAD).to(tl.float32)
        b = tl.load(residual + first + at, mask=inside, other=0.0, eviction_policy=LOAD).to(tl.float32)
        s = a + b
        tl.store(residual + first + at, s.to(residual.dtype.element_ty), mask=inside, cache_modifier=STORE)
        scale = tl.rsqrt(tl.sum(s * s) / n + epsilon)
        result = (s * scale * w.to(tl.float32)).to(x.dtype.element_ty)
        tl.store(x + first + at, result, mask=inside, cache_modifier=STORE)


def warps(block, each):
    """So many warps that a thread has `each` elements of a row."""
    return max(1, min(32, block // (32 * each)))


def programs(rows, threads, device):
    """As many programs as THREADS lets run, or a few less, so that all have equally many rows."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    rounds = triton.cdiv(rows, processors * max(1, THREADS // threads))
    return triton.cdiv(rows, rounds)


def kernel(input, residual, weight, epsilon):
    m, n = input.shape
    arguments = (input, residual, weight, m, n, epsilon)
    block = triton.next_power_of_2(n)
    options = {"BLOCK": block, "LOAD": LOAD, "STORE": STORE}
    if m < FEW:  # a row a program: nothing to fetch ahead
        add_rms_norm[(m,)](*arguments, STAGES=1, num_warps=WARPS_FEW if m <= 132 else warps(block, 16), **options)
    else:
        each = warps(block, EACH)
        grid = (programs(m, 32 * each, input.device),)
        add_rms_norm[grid](*arguments, STAGES=STAGES, num_warps=each, **options)
