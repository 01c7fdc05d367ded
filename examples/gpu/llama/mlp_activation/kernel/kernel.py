"""silu(gate) * up, element by element."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK, WARPS


@triton.jit
def gate_and_multiply(gate, up, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + at, mask=at < count, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(out + at, (g / (1 + tl.exp(-g)) * u).to(out.dtype.element_ty), mask=at < count)


def kernel(gate, up):
    out = torch.empty_like(gate)
    count = gate.numel()
    gate_and_multiply[(triton.cdiv(count, BLOCK),)](gate, up, out, count, BLOCK=BLOCK, num_warps=WARPS)
    return out
