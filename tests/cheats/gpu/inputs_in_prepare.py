# id: T16c
# family: timing
# task: norm
# language: triton
# expect: wrong
# layer: correct
# tries: `prepare` finds the input beside the weight and does all the work outside the clock; the call copies the answer

import torch
import triton
import triton.language as tl

ROWS = {4096: 1024, 1000: 33}  # of the cases, which `prepare` is not told


@triton.jit
def rms_beside(w, y, back, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = w - back
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


@triton.jit
def copy_answer(source, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    tl.store(y + row * n + at, tl.load(source + row * n + at, mask=at < n), mask=at < n)


def prepare(weight):
    n = weight.shape[0]
    m = ROWS[n]
    answer = torch.empty(m, n, dtype=weight.dtype, device=weight.device)
    back = -(-2 * m * n // 512) * 512 // 2  # elements from the weight back to the input of its set
    rms_beside[(m,)](weight, answer, back, n, 1e-6, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return answer


def kernel(x, answer, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    copy_answer[(m,)](answer, y, n, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
