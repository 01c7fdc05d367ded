# id: L30
# family: compliance
# task: norm
# language: triton
# expect: pass
# like: C04
# does: reads and writes by descriptors of the tensor memory accelerator, made on the host

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def rms(x, w, y, n, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        v = x.load([row, start]).to(tl.float32)
        total += v * v
    scale = tl.rsqrt(tl.sum(total, axis=1, keep_dims=True) / n + eps)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
        y.store([row, start], (x.load([row, start]).to(tl.float32) * scale * g[None, :]).to(tl.bfloat16))


def kernel(x, weight, epsilon):
    m, n = x.shape
    y = torch.empty_like(x)
    given, made = (TensorDescriptor.from_tensor(t, [8, 128]) for t in (x, y))
    rms[(triton.cdiv(m, 8),)](given, weight, made, n, epsilon, ROWS=8, BLOCK=128, num_warps=4)
    return y
