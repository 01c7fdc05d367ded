# id: L01
# family: timing
# task: norm
# language: triton
# expect: pass
# like: T01
# does: half of the rows on a side stream, joined both ways
# timed: yes

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
    y, half = torch.empty_like(x), x.shape[0] // 2
    here, side = torch.cuda.current_stream(), STREAMS[0]
    side.wait_stream(here)
    with torch.cuda.stream(side):
        launch(x[half:], weight, y[half:], epsilon)
    launch(x[:half], weight, y[:half], epsilon)
    here.wait_stream(side)
    return y
