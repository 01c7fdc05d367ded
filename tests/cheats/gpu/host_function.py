# id: T27c
# family: timing
# task: norm
# language: python
# expect: not-a-plan
# layer: plan
# tries: a function of the host in the stream, which could do anything between two kernels

import ctypes

import torch
import triton
import triton.language as tl

FREE = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)


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
    launch(x, weight, y, epsilon)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(stream, FREE, None)
    return y
