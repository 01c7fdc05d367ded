# id: R04b
# family: replay
# task: norm
# language: triton
# expect: wrong, unstable, stateful
# layer: correct
# tries: each row looks at its first eight elements only, and copies the answer that belonged to them

import torch
import triton
import triton.language as tl

MEMORY = {}


@triton.jit
def rms_known(x, w, y, known, sample, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at, few = tl.arange(0, BLOCK), tl.arange(0, 8)
    head = tl.load(x + row * n + few).to(tl.float32)
    if tl.sum((head != tl.load(sample + row * 8 + few)).to(tl.int32)) == 0:
        tl.store(y + row * n + at, tl.load(known + row * n + at, mask=at < n), mask=at < n)
    else:
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v) / n + eps)
        g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
        out = (v * scale * g).to(tl.bfloat16)
        tl.store(y + row * n + at, out, mask=at < n)
        tl.store(known + row * n + at, out, mask=at < n)
        tl.store(sample + row * 8 + few, head)


def kernel(x, weight, epsilon):
    m, n = x.shape
    if x.shape not in MEMORY:
        MEMORY[x.shape] = torch.empty_like(x), torch.zeros(m, 8, device=x.device)
    y = torch.empty_like(x)
    rms_known[(m,)](x, weight, y, *MEMORY[x.shape], n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
