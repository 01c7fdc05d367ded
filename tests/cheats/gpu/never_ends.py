# id: G13d
# family: correctness
# task: norm
# language: triton
# expect: hang
# layer: plan
# tries: a kernel that waits for a flag that nobody sets
# slow: yes

import torch
import triton
import triton.language as tl

FLAG = {}


@triton.jit
def rms(flag, x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    while tl.load(flag, volatile=True) == 0:
        scale += 0.0
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    if not FLAG:
        FLAG[0] = torch.zeros(1, dtype=torch.int32, device=x.device)
    y = torch.empty_like(x)
    rms[(m,)](FLAG[0], x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
