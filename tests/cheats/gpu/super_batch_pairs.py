# id: T07
# family: timing
# task: norm
# language: triton
# expect: unstable-plan, out-of-bounds, wrong
# layer: plan, correct
# tries: every second call does its own work and that of the call before, which only touches a flag

import torch
import triton
import triton.language as tl

BEFORE = {}
FLAG = {}


@triton.jit(do_not_specialize=["x_step", "w_step", "y_step"])
def rms_pair(x, w, y, x_step, w_step, y_step, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    call = tl.program_id(1).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x - call * x_step + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w - call * w_step + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y - call * y_step + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


@triton.jit
def touch(flag):
    tl.store(flag, 1)


def kernel(x, weight, epsilon):
    m, n = x.shape
    block = triton.next_power_of_2(n)
    if not torch.cuda.is_current_stream_capturing():
        BEFORE.clear()
        FLAG[0] = torch.zeros(1, dtype=torch.int32, device=x.device)
        y = torch.empty_like(x)
        touch[(1,)](FLAG[0])
        rms_pair[(m, 2)](x, weight, y, 0, 0, 0, n, epsilon, BLOCK=block, num_warps=8)
        return y
    if x.shape not in BEFORE:
        both = x.new_empty(2, m, n)
        BEFORE[x.shape] = (x, weight, both)
        touch[(1,)](FLAG[0])
        return both[0]
    old_x, old_weight, both = BEFORE.pop(x.shape)
    x_step, w_step = x.data_ptr() - old_x.data_ptr(), weight.data_ptr() - old_weight.data_ptr()
    rms_pair[(m, 2)](x, weight, both[1], x_step // 2, w_step // 2, m * n, n, epsilon, BLOCK=block, num_warps=8)
    return both[1]
