# id: T04
# family: timing
# task: norm
# language: python
# expect: not-a-plan, cuda-graphs
# layer: plan
# tries: the same with a thread that Python's own count of threads does not see
# idle: rms

import collections
import ctypes
import time

import torch
import triton
import triton.language as tl

WORK = collections.deque()
LIBC = ctypes.CDLL(None)


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


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def later(_):
    time.sleep(0.002)
    launch(*WORK.popleft())


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    WORK.append((x, weight, y, epsilon))
    LIBC.pthread_create(ctypes.byref(ctypes.c_ulong()), None, later, None)
    return y
