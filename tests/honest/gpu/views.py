# id: L28
# family: correctness
# task: norm
# language: triton
# expect: pass
# like: G08d
# does: contiguous(), view, reshape and friends, which do nothing

import torch
import triton
import triton.language as tl


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
    flat = x.contiguous().reshape(-1, x.shape[-1])
    y = torch.empty(x.numel(), dtype=x.dtype, device=x.device).view(x.shape)
    launch(flat, weight.detach().view(-1), y.squeeze(), epsilon)
    return y.reshape(x.shape)
