"""Fused add + RMSNorm in place: rows ahead as before, but moved by the copy engine (TMA), one instruction a row and tensor.

A tensor map is made on the host and travels as a kernel parameter, so nothing is allocated and a graph can replay it. A row is a
box of n / 256 lines of 256 elements; rows that are not such a box, and few rows, go through registers.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import EACH, FEW, STAGES, STORE, THREADS, WARPS_FEW
from triton.tools.tensor_descriptor import TensorDescriptor

LINE = 256  # elements of a line of a box: the most that the copy engine takes
LINES = tl.constexpr(LINE)


@triton.jit
def add_rms_norm_bulk(
    x_map, residual_map, x, residual, weight, m, n, epsilon, BLOCK: tl.constexpr, STAGES: tl.constexpr, STORE: tl.constexpr
):
    lines: tl.constexpr = BLOCK // LINES
    at = tl.arange(0, lines)[:, None] * LINES + tl.arange(0, LINES)[None, :]
    w = tl.load(weight + at, eviction_policy="evict_last")
    for row in tl.range(tl.program_id(0), m, tl.num_programs(0), num_stages=STAGES):
        first = tl.cast(row, tl.int64) * n
        a = x_map.load([row * lines, 0]).to(tl.float32)
        b = residual_map.load([row * lines, 0]).to(tl.float32)
        s = a + b
        tl.store(residual + first + at, s.to(residual.dtype.element_ty), cache_modifier=STORE)
        scale = tl.rsqrt(tl.sum(s * s) / n + epsilon)
        tl.store(x + first + at, (s * scale * w.to(tl.float32)).to(x.dtype.element_ty), cache_modifier=STORE)


@triton.jit
def add_rms_norm(x, residual, weight, n, epsilon, BLOCK: tl.constexpr, STORE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    a = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    b = tl.load(residual + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=at < n, other=0.0)
    s = a + b
    tl.store(residual + row * n + at, s.to(residual.dtype.element_ty), mask=at < n, cache_modifier=STORE)
    scale = tl.rsqrt(tl.sum(s * s) / n + epsilon)
    tl.store(x + row * n + at, (s * scale * w.to(tl.float32)).to(x.dtype.element_ty), mask=at < n, cache_modifier=STORE)


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
    block = triton.next_power_of_2(n)
    if m < FEW or n != block or n < LINE:
        each = WARPS_FEW if m <= 132 else warps(block, 16)
        add_rms_norm[(m,)](input, residual, weight, n, epsilon, BLOCK=block, STORE=STORE, num_warps=each)
        return
    each = warps(block, EACH)
    maps = [TensorDescriptor.from_tensor(t.view(-1, LINE), [n // LINE, LINE]) for t in (input, residual)]
    options = {"BLOCK": block, "STAGES": STAGES, "STORE": STORE, "num_warps": each}
    add_rms_norm_bulk[(programs(m, 32 * each, input.device),)](*maps, input, residual, weight, m, n, epsilon, **options)
