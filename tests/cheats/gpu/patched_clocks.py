# id: T08
# family: timing
# task: norm
# language: triton
# expect: slower
# layer: time
# tries: make every clock and statistic of this process say that nothing takes time, with a kernel that works twice
# timed: yes

import statistics
import time

import torch
import triton
import triton.language as tl

torch.cuda.Event.elapsed_time = lambda self, other: 0.001
torch.cuda.synchronize = lambda *_: None
torch.cuda.Stream.synchronize = lambda self: None
triton.testing.do_bench = lambda *_, **__: 0.001
time.time = time.perf_counter = lambda: 0.0
time.perf_counter_ns = lambda: 0
statistics.mean = statistics.median = lambda values: 0.0


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
    launch(x, weight, torch.empty_like(x), epsilon)
    launch(x, weight, y, epsilon)
    return y
