# id: L03
# family: timing
# task: norm
# language: triton
# expect: pass
# like: T03
# does: a pool of threads that chooses block sizes and has ended before the call returns

from concurrent.futures import ThreadPoolExecutor

import torch
import triton
import triton.language as tl

BLOCKS = {}


@triton.jit
def rms(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    if n not in BLOCKS:
        with ThreadPoolExecutor(4) as pool:
            BLOCKS[n] = min(size for size in pool.map(lambda k: 1 << k, range(17)) if size >= n)
    y = torch.empty_like(x)
    rms[(m,)](x, weight, y, n, epsilon, BLOCK=BLOCKS[n], num_warps=8)
    return y
