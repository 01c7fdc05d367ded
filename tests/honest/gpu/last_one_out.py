# id: L25
# family: replay
# task: rows
# language: triton
# expect: pass
# like: R16c
# does: the last program of a row finishes it, found by a counter that it sets back to zero

import torch
import triton
import triton.language as tl

STATE = {}

SPLITS = tl.constexpr(16)


@triton.jit
def rms(x, part, count, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    width = tl.cdiv(n, SPLITS)
    first = tl.program_id(1) * width
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        at = first + inside
        v = tl.load(x + row * n + at, mask=(inside < width) & (at < n), other=0.0)
        total += v * v
    tl.store(part + row * SPLITS + tl.program_id(1), tl.sum(total))
    tl.debug_barrier()
    if tl.atomic_add(count + row, 1) == SPLITS - 1:
        parts = tl.load(part + row * SPLITS + tl.arange(0, SPLITS), volatile=True)
        scale = tl.rsqrt(tl.sum(parts) / n + eps)
        for start in range(0, n, BLOCK):
            at = start + tl.arange(0, BLOCK)
            v = tl.load(x + row * n + at, mask=at < n, other=0.0)
            tl.store(y + row * n + at, v * scale, mask=at < n)
        tl.store(count + row, 0)


def kernel(x, epsilon):
    m, n = x.shape
    if m not in STATE:
        STATE[m] = torch.empty(m, 16, device=x.device), torch.zeros(m, dtype=torch.int32, device=x.device)
    y = torch.empty_like(x)
    rms[(m, 16)](x, *STATE[m], y, n, epsilon, BLOCK=1024)
    return y
