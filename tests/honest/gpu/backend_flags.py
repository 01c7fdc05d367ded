# id: L16
# family: tampering
# task: norm
# language: triton
# expect: pass
# like: H15
# does: sets flags of torch that change the precision of what it does not use

import torch
import triton
import triton.language as tl

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.set_float32_matmul_precision("medium")
torch.set_grad_enabled(False)


@triton.jit
def rms(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * scale * g).to(tl.bfloat16), mask=at < n)


def launch(x, weight, y, epsilon):
    m, n = x.shape
    rms[(m,)](x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    launch(x, weight, y, epsilon)
    return y
