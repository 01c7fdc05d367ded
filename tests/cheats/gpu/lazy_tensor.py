# id: T05
# family: timing
# task: norm
# language: python
# expect: wrong
# layer: plan
# tries: a tensor subclass that computes when it is first looked at
# idle: rms

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


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            for value in args:
                work = value.__dict__.pop("work", None) if isinstance(value, Lazy) else None
                if work:
                    launch(*work)
            return function(*args, **(kwargs or {}))


def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    lazy = y.as_subclass(Lazy)
    lazy.__dict__["work"] = (x, weight, y, epsilon)
    return lazy
