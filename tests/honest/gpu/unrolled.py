# id: L09
# family: correctness
# task: norm
# language: triton
# expect: pass
# like: G14
# does: an unrolled loop over pieces of a row, the last one masked

import torch
import triton
import triton.language as tl


@triton.jit
def rms(x, w, y, n, eps, BLOCK: tl.constexpr, PIECES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for piece in tl.static_range(PIECES):
        at = piece * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        total += v * v
    scale = tl.rsqrt(tl.sum(total) / n + eps)
    for piece in tl.static_range(PIECES):
        at = piece * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    rms[(m,)](x, weight, y, n, epsilon, BLOCK=1024, PIECES=triton.cdiv(n, 1024), num_warps=4)
    return y
