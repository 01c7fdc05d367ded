# id: O03b
# family: overfit
# task: norm
# language: triton
# expect: wrong, unstable-plan
# layer: correct, time, plan
# tries: one captured call in sixteen launches a cheaper kernel: few calls are shown to the reference
# timed: yes

import torch
import triton
import triton.language as tl

CALLS = []


@triton.jit
def rms(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


@triton.jit
def plain(x, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    tl.store(y + row * n + at, (v * scale).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    capturing, block = torch.cuda.is_current_stream_capturing(), triton.next_power_of_2(n)
    CALLS[:] = [*CALLS, x] if capturing else []
    if not capturing or len(CALLS) % 16 == 0:
        plain[(m,)](x, y, n, epsilon, BLOCK=block, num_warps=8)
    if not capturing or len(CALLS) % 16:
        rms[(m,)](x, weight, y, n, epsilon, BLOCK=block, num_warps=8)
    return y
