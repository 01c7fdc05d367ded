# id: G05b
# family: correctness
# task: norm
# language: triton
# expect: wrong
# layer: correct
# tries: the last rows, less than one in a hundred, are a copy of the first ones

import torch
import triton
import triton.language as tl


@triton.jit
def rms(x, w, y, m, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    source = tl.where(row >= m - tl.cdiv(m, 200), row - m + tl.cdiv(m, 200), row)
    v = tl.load(x + source * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def launch(x, weight, y, epsilon):
    m, n = x.shape
    rms[(m,)](x, weight, y, m, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    launch(x, weight, y, epsilon)
    return y
