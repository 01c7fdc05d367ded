"""silu(gate) * up, launched early (programmatic dependent launch), and what comes behind as well, if it waits by itself. Alone, between
other calls, this shows nothing; in a model every kernel before it counts.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import EACH, WARPS
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def gate_and_multiply(gate, up, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gdc_launch_dependents()  # whoever comes next waits for the end of this
    gdc_wait()
    g = tl.load(gate + at, mask=at < count, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(out + at, (g / (1 + tl.exp2(-1.4426950408889634 * g)) * u).to(out.dtype.element_ty), mask=at < count)


def kernel(gate, up):
    out = torch.empty_like(gate)
    count, block = gate.numel(), 32 * 8 * WARPS * EACH
    gate_and_multiply[(triton.cdiv(count, block),)](gate, up, out, count, BLOCK=block, num_warps=WARPS, launch_pdl=True)
    return out
