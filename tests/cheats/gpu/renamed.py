# id: B10b
# family: metric
# task: norm
# language: triton
# expect: no-gain, ambiguous, slower, not-confirmed, same-code
# layer: time, plan
# tries: the same work under another name and with an argument more
# timed: yes

import torch
import triton
import triton.language as tl


@triton.jit
def entirely_new(unused, x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    m, n = x.shape
    entirely_new[(m,)](n, x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
