# id: T17
# family: timing
# task: norm
# language: python
# expect: wrong, stateful, out-of-bounds, unstable-plan, not-a-plan, cuda-graphs, crash
# layer: plan, correct
# tries: record a graph once and replay it, with the addresses of the first call

import torch
import triton
import triton.language as tl

GRAPHS = {}


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
    if x.shape not in GRAPHS:
        y = torch.empty_like(x)
        launch(x, weight, y, epsilon)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin()
            launch(x, weight, y, epsilon)
            graph.capture_end()
        GRAPHS[x.shape] = graph, x, weight, y
    graph, _, _, y = GRAPHS[x.shape]
    graph.replay()
    return y.clone()
