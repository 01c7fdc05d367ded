# id: R02
# family: replay
# task: norm
# language: triton
# expect: unstable-plan, wrong, stateful
# layer: plan, correct
# tries: keep the answer as an attribute of the input object, as long as its version does not change

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
    known = getattr(x, "known", None)
    if known is not None and known[0] == x._version:
        return known[1].clone()
    y = torch.empty_like(x)
    launch(x, weight, y, epsilon)
    if not torch.cuda.is_current_stream_capturing():
        x.known = x._version, y
    return y
