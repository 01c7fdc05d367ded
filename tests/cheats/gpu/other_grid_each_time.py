# id: T14
# family: timing
# task: norm
# language: triton
# expect: unstable-plan
# layer: time
# tries: another grid in every process, so that the second capture is not the kernel that was checked
# twice: yes

import os

import torch
import triton
import triton.language as tl

IDLE = 1 + int.from_bytes(os.urandom(2), "little")


@triton.jit
def rms(x, w, y, m, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    if row < m:
        at = tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v) / n + eps)
        g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    rms[(m + IDLE,)](x, weight, y, m, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
