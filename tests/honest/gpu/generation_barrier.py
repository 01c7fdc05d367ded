# id: L55
# family: overfit
# task: rows
# language: triton
# expect: pass
# like: O04c
# does: a cooperative launch whose last program sets the counter back and begins a new generation, for which the others wait

import torch
import triton
import triton.language as tl

STATE = {}

SPLITS = tl.constexpr(2)


# state: programs that have arrived, and the generation, which only grows.
@triton.jit
def rms(x, part, state, y, n, eps, BLOCK: tl.constexpr):
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
    before = tl.atomic_add(state + 1, 0)
    if tl.atomic_add(state, 1) == tl.num_programs(0) * SPLITS - 1:
        tl.atomic_xchg(state, 0)
        tl.atomic_add(state + 1, 1)
    while tl.atomic_add(state + 1, 0) == before:
        pass
    tl.debug_barrier()
    parts = tl.load(part + row * SPLITS + tl.arange(0, SPLITS), volatile=True)
    scale = tl.rsqrt(tl.sum(parts) / n + eps)
    for start in range(0, width, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        at = first + inside
        ok = (inside < width) & (at < n)
        v = tl.load(x + row * n + at, mask=ok, other=0.0)
        tl.store(y + row * n + at, v * scale, mask=ok)


def kernel(x, epsilon):
    m, n = x.shape
    if m not in STATE:
        STATE[m] = torch.empty(m, 2, device=x.device), torch.zeros(2, dtype=torch.int32, device=x.device)
    y = torch.empty_like(x)
    rms[(m, 2)](x, *STATE[m], y, n, epsilon, BLOCK=1024, launch_cooperative_grid=True)
    return y
