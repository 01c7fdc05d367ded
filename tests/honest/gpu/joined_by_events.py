# id: L02
# family: timing
# task: rows
# language: triton
# expect: pass
# like: T01b
# does: two kernels at once on two streams, joined by events, before a third that needs both

import torch
import triton
import triton.language as tl

STREAMS = []

SPLITS = tl.constexpr(16)


@triton.jit
def sums(x, part, first_row, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) + first_row
    width = tl.cdiv(n, SPLITS)
    first = tl.program_id(1) * width
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        at = first + inside
        v = tl.load(x + row * n + at, mask=(inside < width) & (at < n), other=0.0)
        total += v * v
    tl.store(part + row * SPLITS + tl.program_id(1), tl.sum(total))


@triton.jit
def scaled(x, part, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    width = tl.cdiv(n, SPLITS)
    first = tl.program_id(1) * width
    scale = tl.rsqrt(tl.sum(tl.load(part + row * SPLITS + tl.arange(0, SPLITS))) / n + eps)
    for start in range(0, width, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        at = first + inside
        ok = (inside < width) & (at < n)
        v = tl.load(x + row * n + at, mask=ok, other=0.0)
        tl.store(y + row * n + at, v * scale, mask=ok)


def kernel(x, epsilon):
    m, n = x.shape
    if not STREAMS:
        STREAMS.append(torch.cuda.Stream())
    part, y, half = torch.empty(m, 16, device=x.device), torch.empty_like(x), m // 2
    fork, join = torch.cuda.Event(), torch.cuda.Event()
    fork.record()
    fork.wait(STREAMS[0])
    with torch.cuda.stream(STREAMS[0]):
        sums[(m - half, 16)](x, part, half, n, BLOCK=1024)
        join.record()
    sums[(half, 16)](x, part, 0, n, BLOCK=1024)
    join.wait()
    scaled[(m, 16)](x, part, y, n, epsilon, BLOCK=1024)
    return y
