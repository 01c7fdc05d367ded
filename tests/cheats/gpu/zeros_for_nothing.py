# id: R16c
# family: replay
# task: rows
# language: triton
# expect: wrong, unstable
# layer: correct
# tries: the same in memory that is never given back: a plan restores it, to zeros, before every launch

import torch
import triton
import triton.language as tl

KEPT = []

SPLITS = tl.constexpr(16)


@triton.jit
def sums(x, part, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    width = tl.cdiv(n, SPLITS)
    first = tl.program_id(1) * width
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        at = first + inside
        v = tl.load(x + row * n + at, mask=(inside < width) & (at < n), other=0.0)
        total += v * v
    tl.atomic_add(part + row, tl.sum(total))


@triton.jit
def scaled(x, part, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    width = tl.cdiv(n, SPLITS)
    first = tl.program_id(1) * width
    scale = tl.rsqrt(tl.load(part + row) / n + eps)
    for start in range(0, width, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        at = first + inside
        ok = (inside < width) & (at < n)
        v = tl.load(x + row * n + at, mask=ok, other=0.0)
        tl.store(y + row * n + at, v * scale, mask=ok)


def kernel(x, epsilon):
    m, n = x.shape
    total = torch.empty(m, device=x.device)
    KEPT.append(total)
    y = torch.empty_like(x)
    sums[(m, 16)](x, total, n, BLOCK=1024)
    scaled[(m, 16)](x, total, y, n, epsilon, BLOCK=1024)
    return y
