# id: T02
# family: timing
# task: norm
# language: python
# expect: cuda-graphs
# layer: plan
# tries: a stream made by the driver, which no pattern for torch.cuda.Stream finds
# idle: rms

import torch
import triton
import triton.language as tl
from cuda.bindings import driver

HANDLES = []


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
    if not HANDLES:
        HANDLES.append(int(driver.cuStreamCreate(1)[1]))
    y = torch.empty_like(x)
    with torch.cuda.stream(torch.cuda.ExternalStream(HANDLES[0])):
        launch(x, weight, y, epsilon)
    return y
