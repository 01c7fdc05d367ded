# id: L56
# family: overfit
# task: rows
# language: triton
# expect: pass
# like: O04c
# does: two buffers of partial sums in turn, and a word on the card that says whose turn it is

import torch
import triton
import triton.language as tl

STATE = {}

SPLITS = tl.constexpr(16)


@triton.jit
def sums(x, parts, turn, m, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = parts + tl.load(turn) * m * SPLITS
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
def scaled(x, parts, turn, y, m, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = parts + tl.load(turn) * m * SPLITS
    width = tl.cdiv(n, SPLITS)
    first = tl.program_id(1) * width
    scale = tl.rsqrt(tl.sum(tl.load(part + row * SPLITS + tl.arange(0, SPLITS))) / n + eps)
    for start in range(0, width, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        at = first + inside
        ok = (inside < width) & (at < n)
        v = tl.load(x + row * n + at, mask=ok, other=0.0)
        tl.store(y + row * n + at, v * scale, mask=ok)


@triton.jit
def flip(turn):
    tl.store(turn, 1 - tl.load(turn))


def kernel(x, epsilon):
    m, n = x.shape
    if m not in STATE:
        STATE[m] = torch.empty(2, m, 16, device=x.device), torch.zeros(1, dtype=torch.int32, device=x.device)
    parts, turn = STATE[m]
    y = torch.empty_like(x)
    sums[(m, 16)](x, parts, turn, m, n, BLOCK=1024)
    scaled[(m, 16)](x, parts, turn, y, m, n, epsilon, BLOCK=1024)
    flip[(1,)](turn)
    return y
