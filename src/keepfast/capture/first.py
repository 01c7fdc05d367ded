"""A small kernel that a worker has Triton compile while it gets ready: half of what the first one takes is paid once a process (LLVM,
ptxas, tables), and a candidate's would be the first. Measured: 0.8 s, then 0.4 s. Must not be launched, or know candidates.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def first(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(x + at, (values * tl.rsqrt(tl.sum(values * values))).to(x.dtype.element_ty), mask=at < n)


def compiled() -> object:
    """What Triton makes of it for the current device."""
    import torch

    return first.warmup(torch.bfloat16, 4096, BLOCK=1024, grid=(1,))
