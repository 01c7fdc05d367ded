import torch
import triton
import triton.language as tl

DEVICE = torch.device("cpu")


@triton.jit
def rows_kernel(out, x, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, mask=at < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=at < n)


def rows(x):
    m, n = x.shape
    y = torch.empty_like(x)
    rows_kernel[(m,)](y, x, x.stride(0), n, BLOCK=triton.next_power_of_2(n))
    return y


torch.manual_seed(0)
x = torch.randn(18, 78, device=DEVICE)
assert torch.allclose(rows(x), torch.softmax(x, 1))
