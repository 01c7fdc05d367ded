# id: T16b
# family: timing
# task: norm
# language: triton
# expect: wrong, stateful
# layer: correct
# tries: `prepare` packs the first weight of a size, and hands that pack out for every later one

import torch
import triton
import triton.language as tl

PACKED = {}


@triton.jit
def widen_once(w, wide, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(wide + at, tl.load(w + at, mask=at < n, other=0.0).to(tl.float32), mask=at < n)


@triton.jit
def rms_packed(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def prepare(weight):
    n = weight.shape[0]
    if n not in PACKED:
        PACKED[n] = torch.empty(n, dtype=torch.float32, device=weight.device)
        widen_once[(1,)](weight, PACKED[n], n, BLOCK=triton.next_power_of_2(n), num_warps=4)
    return PACKED[n]


def kernel(x, wide, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    rms_packed[(m,)](x, wide, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
