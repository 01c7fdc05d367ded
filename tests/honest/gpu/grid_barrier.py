# id: L26
# family: correctness
# task: rows
# language: triton
# expect: pass
# like: G13d
# does: a cooperative launch whose programs wait for each other, by a counter that only grows

import torch
import triton
import triton.language as tl

STATE = {}

SPLITS = tl.constexpr(2)


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
    programs = tl.num_programs(0) * SPLITS
    wanted = (tl.atomic_add(count, 1) // programs + 1) * programs
    while tl.atomic_add(count, 0) < wanted:
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
        STATE[m] = torch.empty(m, 2, device=x.device), torch.zeros(1, dtype=torch.int32, device=x.device)
    y = torch.empty_like(x)
    rms[(m, 2)](x, *STATE[m], y, n, epsilon, BLOCK=1024, launch_cooperative_grid=True)
    return y
