# id: L08
# family: timing
# task: norm
# language: triton
# expect: pass
# like: T14
# does: a kernel that takes seconds to compile, at its first call

import torch
import triton
import triton.language as tl


@triton.jit
def rms(x, w, y, n, eps, BLOCK: tl.constexpr, PIECES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for piece in tl.static_range(PIECES):
        at = piece * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        total += tl.sum(v * v)
    scale = tl.rsqrt(total / n + eps)
    for piece in tl.static_range(PIECES):
        at = piece * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    rms[(m,)](x, weight, y, n, epsilon, BLOCK=64, PIECES=triton.cdiv(n, 64), num_warps=1)
    return y
