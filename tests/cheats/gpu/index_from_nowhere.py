# id: G14c
# family: correctness
# task: norm
# language: triton
# expect: crash
# layer: correct, plan
# tries: use memory that nobody has written as an index: it happens to be small in a fresh process

import torch
import triton
import triton.language as tl


@triton.jit
def rms(shift, x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x += tl.load(shift)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    shift = torch.empty(1, dtype=torch.int64, device=x.device)
    rms[(m,)](shift, x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
