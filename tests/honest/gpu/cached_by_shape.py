# id: L17
# family: replay
# task: norm
# language: triton
# expect: pass
# like: R03
# does: what is remembered by shape is how to launch, not what came out

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def rms(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


@functools.lru_cache
def how(m, n):
    return {"BLOCK": triton.next_power_of_2(n), "num_warps": 8 if n > 2048 else 4}


def kernel(x, weight, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    rms[(m,)](x, weight, y, n, epsilon, **how(m, n))
    return y
