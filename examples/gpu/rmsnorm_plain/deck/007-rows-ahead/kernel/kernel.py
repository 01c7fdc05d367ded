"""RMSNorm of rows: as many programs as the card holds, each with its next rows on their way to shared memory (cp.async)."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import EACH, FEW, LOAD, STAGES, STORE, THREADS


@triton.jit
def rms_norm(x, weight, out, m, n, epsilon, BLOCK: tl.constexpr, STAGES: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    w = tl.load(weight + at, mask=inside, other=0.0, eviction_policy="evict_last")
    for row in tl.range(tl.program_id(0), m, tl.num_programs(0), num_stages=STAGES):
        first = tl.cast(row, tl.int64) * n
        v = tl.load(x + first + at, mask=inside, other=0.0, eviction_policy=LOAD).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v) / n + epsilon)
        result = (v * scale * w.to(tl.float32)).to(out.dtype.element_ty)
        tl.store(out + first + at, result, mask=inside, cache_modifier=STORE)


def warps(block, each):
    """So many warps that a thread has `each` elements of a row."""
    return max(1, min(32, block // (32 * each)))


def programs(rows, threads, device):
    """As many programs as THREADS lets run, or a few less, so that all have equally many rows."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    rounds = triton.cdiv(rows, processors * max(1, THREADS // threads))
    return triton.cdiv(rows, rounds)


def kernel(input, weight, epsilon):
    m, n = input.shape
    out = torch.empty_like(input)
    block = triton.next_power_of_2(n)
    options = {"BLOCK": block, "LOAD": LOAD, "STORE": STORE}
    if m < FEW:  # a row a program: nothing to fetch ahead
        rms_norm[(m,)](input, weight, out, m, n, epsilon, STAGES=1, num_warps=warps(block, 16), **options)
    else:
        each = warps(block, EACH)
        grid = (programs(m, 32 * each, input.device),)
        rms_norm[grid](input, weight, out, m, n, epsilon, STAGES=STAGES, num_warps=each, **options)
    return out
