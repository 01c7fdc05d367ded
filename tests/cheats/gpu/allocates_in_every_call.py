# id: B08b
# family: metric
# task: norm
# language: triton
# expect: cuda-graphs
# layer: plan
# tries: cudaMalloc in every call, which no graph can hold
# idle: scales, scaled

import ctypes

import torch
import triton
import triton.language as tl

CUDA = ctypes.CDLL("libcuda.so.1")


def taken(size):
    address = ctypes.c_uint64()
    if code := CUDA.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)):
        raise RuntimeError(f"CUDA error: {code}")
    return address.value


class Raw:
    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "<f4", "data": (address, False), "version": 3}


@triton.jit
def scales(x, scale, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(scale + row, tl.rsqrt(tl.sum(v * v) / n + eps))


@triton.jit
def scaled(x, w, scale, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    g = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (v * tl.load(scale + row) * g).to(tl.bfloat16), mask=at < n)


def kernel(x, weight, epsilon):
    m, n = x.shape
    scale = torch.as_tensor(Raw(taken(4 * m), m), device=x.device)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(n)
    scales[(m,)](x, scale, n, epsilon, BLOCK=block, num_warps=8)
    scaled[(m,)](x, weight, scale, y, n, BLOCK=block, num_warps=8)
    return y
