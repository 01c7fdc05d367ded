import torch
import triton
import triton.language as tl

from .utils import on_device

BLOCK = 1024


def _gate(e, g, h, n, BLOCK: tl.constexpr, LONG: tl.constexpr):
    start = tl.program_id(0)
    at = start * BLOCK + tl.arange(0, BLOCK)
    ev = tl.load(e + at, mask=at < n, other=0).to(tl.float32)
    gv = tl.load(g + at, mask=at < n, other=0)
    tl.store(h + at, ((ev * tl.sigmoid(ev)).to(gv.dtype) * gv), mask=at < n)


_gate = triton.heuristics({"LONG": lambda args: bool(args["LONG"])})(triton.jit(_gate))


def gate_kernel(e, g):
    batch, length, width = e.shape
    n = e.numel()
    h = torch.empty((batch, length, width), dtype=e.dtype, device=e.device)

    def grid(meta):
        return (triton.cdiv(n, meta["BLOCK"]),)

    with on_device(e.device):
        _gate[grid](e, g, h, n, BLOCK=BLOCK, LONG=0)
    return h
