# id: L04
# family: timing
# task: norm
# language: triton
# expect: pass
# like: T07
# does: as many programs as the card holds, each over many rows of its own call
# timed: yes

import torch
import triton
import triton.language as tl


@triton.jit
def rms(x, w, y, m, n, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    for number in range(tl.program_id(0), m, tl.num_programs(0)):
        row = number.to(tl.int64)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v) / n + eps)
        tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    programs = 4 * torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 8
    rms[(min(m, programs),)](x, weight, y, m, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
