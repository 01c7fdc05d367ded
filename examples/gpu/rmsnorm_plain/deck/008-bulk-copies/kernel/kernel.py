"""RMSNorm of rows: rows ahead as before, but moved by the copy engine (TMA), one instruction a row.

A tensor map is made on the host and travels as a kernel parameter, so nothing is allocated and a graph can replay it. A row is a
box of n / 256 lines of 256 elements; rows that are not such a box, and few rows, go through registers.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BULK_STORE, EACH, FEW, STAGES, STORE, THREADS
from triton.tools.tensor_descriptor import TensorDescriptor

LINE = 256  # elements of a line of a box: the most that the copy engine takes
LINES = tl.constexpr(LINE)


@triton.jit
def rms_norm_bulk(
    x, weight, out, out_map, m, n, epsilon, BLOCK: tl.constexpr, STAGES: tl.constexpr, BULK: tl.constexpr, STORE: tl.constexpr
):
    lines: tl.constexpr = BLOCK // LINES
    at = tl.arange(0, lines)[:, None] * LINES + tl.arange(0, LINES)[None, :]
    w = tl.load(weight + at, eviction_policy="evict_last")
    for row in tl.range(tl.program_id(0), m, tl.num_programs(0), num_stages=STAGES):
        v = x.load([row * lines, 0]).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v) / n + epsilon)
        result = (v * scale * w.to(tl.float32)).to(tl.bfloat16)
        if BULK:
            out_map.store([row * lines, 0], result)
        else:
            tl.store(out + tl.cast(row, tl.int64) * n + at, result, cache_modifier=STORE)


@triton.jit
def rms_norm(x, weight, out, n, epsilon, BLOCK: tl.constexpr, STORE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=at < n, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v) / n + epsilon)
    tl.store(out + row * n + at, (v * scale * w.to(tl.float32)).to(out.dtype.element_ty), mask=at < n, cache_modifier=STORE)


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
    if m < FEW or n != block or n < LINE:
        rms_norm[(m,)](input, weight, out, n, epsilon, BLOCK=block, STORE=STORE, num_warps=warps(block, 16))
        return out
    each = warps(block, EACH)
    grid = (programs(m, 32 * each, input.device),)
    x, y = (TensorDescriptor.from_tensor(t.view(-1, LINE), [n // LINE, LINE]) for t in (input, out))
    options = {"BLOCK": block, "STAGES": STAGES, "BULK": BULK_STORE, "STORE": STORE, "num_warps": each}
    rms_norm_bulk[grid](x, weight, out, y, m, n, epsilon, **options)
    return out
