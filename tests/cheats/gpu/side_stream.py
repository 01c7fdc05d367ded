# id: T01
# family: timing
# task: norm
# language: python
# expect: cuda-graphs
# layer: plan
# tries: launch on a stream of its own and return at once: events on the current stream bracket nothing

import torch
import triton
import triton.language as tl

STREAMS = []


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
    if not STREAMS:
        STREAMS.append(torch.cuda.Stream())
    y = torch.empty_like(x)
    with torch.cuda.stream(STREAMS[0]):
        launch(x, weight, y, epsilon)
    return y
