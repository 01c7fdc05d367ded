# id: C01b
# family: compliance
# task: norm
# language: triton
# expect: language, rule, unstable-plan, not-a-plan
# layer: plan, rules
# tries: its own kernel in the first captured call, whose kernels are looked at, and the library in all others

import torch
import triton
import triton.language as tl

SEEN = set()


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
    capturing = torch.cuda.is_current_stream_capturing()
    if not capturing:
        SEEN.clear()
    if not capturing or x.shape not in SEEN:
        y = torch.empty_like(x)
        launch(x, weight, y, epsilon)
    if not capturing or x.shape in SEEN:
        y = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, epsilon)
    if capturing:
        SEEN.add(x.shape)
    return y
