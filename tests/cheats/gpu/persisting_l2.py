# id: T20
# family: timing
# task: norm
# language: python
# expect: not-a-plan
# layer: plan
# tries: keep the input in a part of the L2 that no washing reaches
# idle: rms

import torch
import triton
import triton.language as tl
from cuda.bindings import driver


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


def stay(x):
    if not torch.cuda.is_current_stream_capturing():
        driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 32 << 20)
    value = driver.CUstreamAttrValue()
    window, kind = value.accessPolicyWindow, driver.CUaccessProperty
    window.base_ptr, window.num_bytes, window.hitRatio = x.data_ptr(), min(x.nbytes, 8 << 20), 1.0
    window.hitProp, window.missProp = kind.CU_ACCESS_PROPERTY_PERSISTING, kind.CU_ACCESS_PROPERTY_STREAMING
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    driver.cuStreamSetAttribute(stream, driver.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, value)


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    stay(x)
    launch(x, weight, y, epsilon)
    return y
