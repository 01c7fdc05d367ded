"""silu(gate) * up by the hardware's tanh, one instruction instead of an exponential and a quotient."""

import torch
import triton
import triton.language as tl
from keepfast_tunables import EACH, WARPS


@triton.jit
def tanh_of(v):
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [v], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def gate_and_multiply(gate, up, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + at, mask=at < count, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(out + at, (g * (0.5 + 0.5 * tanh_of(0.5 * g)) * u).to(out.dtype.element_ty), mask=at < count)


def kernel(gate, up):
    out = torch.empty_like(gate)
    count, block = gate.numel(), 32 * 8 * WARPS * EACH
    gate_and_multiply[(triton.cdiv(count, block),)](gate, up, out, count, BLOCK=block, num_warps=WARPS)
    return out
