# id: L12
# family: timing
# task: norm
# language: triton
# expect: pass
# like: T17
# does: a graph of its own that is fed by copies, outside any other graph; inside one, where torch replays none, the kernel alone

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


def recorded(x, weight, epsilon):
    given = x.clone(), weight.clone(), torch.empty_like(x)
    launch(*given, epsilon)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin()
        launch(*given, epsilon)
        graph.capture_end()
    return graph, given


def kernel(x, weight, epsilon):
    if torch.cuda.is_current_stream_capturing():
        y = torch.empty_like(x)
        launch(x, weight, y, epsilon)
        return y
    if x.shape not in GRAPHS:
        GRAPHS[x.shape] = recorded(x, weight, epsilon)
    graph, (own_x, own_weight, own_y) = GRAPHS[x.shape]
    own_x.copy_(x)
    own_weight.copy_(weight)
    graph.replay()
    return own_y.clone()
