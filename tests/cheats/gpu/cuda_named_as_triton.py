# id: C04b
# family: compliance
# task: norm
# language: cuda
# expect: language
# layer: time
# tries: the same under the name of a Triton kernel that is declared and never launched
# idle: rms
# twice: yes

import ctypes

import torch
import triton
import triton.language as tl
from cuda.bindings import driver, nvrtc

FUNCTION = []


@triton.jit
def rms(x, y):
    tl.store(y, tl.load(x))


SOURCE = rb"""
__device__ float wide(unsigned short h) { return __uint_as_float((unsigned)h << 16); }
__device__ unsigned short narrow(float f) {
    unsigned u = __float_as_uint(f);
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
extern "C" __global__ void rms(const unsigned short *x, const unsigned short *w, unsigned short *y, int n, float eps) {
    __shared__ float all[256];
    const unsigned short *in = x + (size_t)blockIdx.x * n;
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) sum += wide(in[i]) * wide(in[i]);
    all[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (threadIdx.x < half) all[threadIdx.x] += all[threadIdx.x + half];
        __syncthreads();
    }
    float scale = rsqrtf(all[0] / n + eps);
    for (int i = threadIdx.x; i < n; i += 256) y[(size_t)blockIdx.x * n + i] = narrow(wide(in[i]) * scale * wide(w[i]));
}
"""


def done(result):
    assert int(result[0]) == 0, result[0]
    return result[1] if len(result) == 2 else None


def compiled():
    program = done(nvrtc.nvrtcCreateProgram(SOURCE, b"rms.cu", 0, [], []))
    major, minor = torch.cuda.get_device_capability()
    arch = f"--gpu-architecture=sm_{major}{minor}"
    done(nvrtc.nvrtcCompileProgram(program, 1, [arch.encode()]))
    image = bytes(done(nvrtc.nvrtcGetCUBINSize(program)))
    done(nvrtc.nvrtcGetCUBIN(program, image))
    module = done(driver.cuModuleLoadData(image))
    return module, done(driver.cuModuleGetFunction(module, b"rms"))


def kernel(x, weight, epsilon):
    if not FUNCTION:
        FUNCTION.append(compiled())
    m, n = x.shape
    y = torch.empty_like(x)
    values = (x.data_ptr(), weight.data_ptr(), y.data_ptr(), n, epsilon)
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_float)
    stream = torch.cuda.current_stream().cuda_stream
    done(driver.cuLaunchKernel(FUNCTION[0][1], m, 1, 1, 256, 1, 1, 0, stream, (values, kinds), 0))
    return y
