# id: L58
# family: timing
# task: norm
# language: triton
# expect: pass
# like: T16
# does: `prepare` widens the weight of each call, declared and outside the clock

import torch
import triton
import triton.language as tl


@triton.jit
def widen(w, wide, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(wide + at, tl.load(w + at, mask=at < n, other=0.0).to(tl.float32), mask=at < n)


@triton.jit
def rms_wide(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def prepare(weight):
    n = weight.shape[0]
    wide = torch.empty(n, dtype=torch.float32, device=weight.device)
    widen[(triton.cdiv(n, 256),)](weight, wide, n, BLOCK=256, num_warps=4)
    return wide


def kernel(x, wide, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    rms_wide[(m,)](x, wide, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
