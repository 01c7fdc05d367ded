# id: R03b
# family: replay
# task: norm
# language: triton
# expect: stateful, wrong
# layer: correct
# tries: the first call of a launch computes and sets a flag on the device; later ones copy its answer

import torch
import triton
import triton.language as tl

MEMORY = {}


@triton.jit
def rms_once(x, w, y, known, flag, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    if tl.load(flag) != 0:
        tl.store(y + row * n + at, tl.load(known + row * n + at, mask=at < n), mask=at < n)
    else:
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(v * v) / n + eps)
        g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
        out = (v * scale * g).to(tl.bfloat16)
        tl.store(y + row * n + at, out, mask=at < n)
        tl.store(known + row * n + at, out, mask=at < n)


@triton.jit(do_not_specialize=["value"])
def set_flag(flag, value):
    tl.store(flag, value)


def kernel(x, weight, epsilon):
    m, n = x.shape
    if x.shape not in MEMORY:
        MEMORY[x.shape] = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device=x.device)
    known, flag = MEMORY[x.shape]
    y = torch.empty_like(x)
    rms_once[(m,)](x, weight, y, known, flag, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)
    set_flag[(1,)](flag, 2 if torch.cuda.is_current_stream_capturing() else 0)
    return y
