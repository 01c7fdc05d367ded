"""What this card can do at most, of what needs a library: copies, reads, writes, matrix products. Best of several, random data.

Must not know tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

REPEATS = 12
BYTES = 2 << 30
SIZES = (4096, 8192)  # of square matrices, on a GPU
Work = Callable[[], object]
Numbers = tuple[tuple[str, float], ...]


def measure(device: torch.device) -> Numbers:
    """Rates in GB/s and TFLOP/s (integers: TOP/s). What this card or this torch cannot do is left out."""
    if device.type != "cuda":
        return (("copy_GBps", _copy(device, 256 << 20)), ("float32_TFLOPs", _product(device, torch.float32, 1024)))
    size = min(BYTES, torch.cuda.mem_get_info(device)[0] // 8)
    numbers = [("copy_GBps", _copy(device, size)), ("read_GBps", _read(device, size)), ("write_GBps", _write(device, size))]
    numbers += [(f"{t}_TFLOPs", _best_product(device, getattr(torch, t))) for t in ("bfloat16", "float16")]
    before = torch.get_float32_matmul_precision()
    try:
        for name, precision in (("float32", "highest"), ("tf32", "high")):
            torch.set_float32_matmul_precision(precision)
            numbers.append((f"{name}_TFLOPs", _best_product(device, torch.float32)))
    finally:
        torch.set_float32_matmul_precision(before)
    if torch.cuda.get_device_capability(device) >= (8, 9):
        numbers.append(("float8_TFLOPs", max(_float8(device, n) for n in SIZES)))
    numbers.append(("int8_TOPs", max(_int8(device, n) for n in SIZES)))
    return tuple(numbers)


def _best_s(device: torch.device, work: Work) -> float:
    """Seconds of one go: the best of REPEATS after two that warm."""
    for _ in range(2):
        work()
    return min(_timed_s(device, work) for _ in range(REPEATS))


def _timed_s(device: torch.device, work: Work) -> float:
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    with torch.cuda.device(device):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        work()
        last.record()
        last.synchronize()
    return float(first.elapsed_time(last)) / 1e3


def _words(device: torch.device, size: int) -> torch.Tensor:
    return torch.rand(size // 4, dtype=torch.float32, device=device)


def _copy(device: torch.device, size: int) -> float:
    source = _words(device, size)
    target = torch.empty_like(source)
    return float(2 * source.nbytes / _best_s(device, lambda: target.copy_(source)) / 1e9)


def _read(device: torch.device, size: int) -> float:
    source = _words(device, size)
    return float(source.nbytes / _best_s(device, source.sum) / 1e9)


def _write(device: torch.device, size: int) -> float:
    target = _words(device, size)
    return float(target.nbytes / _best_s(device, lambda: target.fill_(1.0)) / 1e9)


def _best_product(device: torch.device, dtype: torch.dtype) -> float:
    return max(_product(device, dtype, n) for n in SIZES)


def _rate(device: torch.device, n: int, work: Work) -> float:
    return 2.0 * n**3 / _best_s(device, work) / 1e12


def _product(device: torch.device, dtype: torch.dtype, n: int) -> float:
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return _rate(device, n, lambda: torch.mm(a, b, out=out))


def _float8(device: torch.device, n: int) -> float:
    a, b = (torch.randn(n, n, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=device)
    return _rate(device, n, lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True))


def _int8(device: torch.device, n: int) -> float:
    a, b = (torch.randint(-128, 128, (n, n), dtype=torch.int8, device=device) for _ in range(2))
    return _rate(device, n, lambda: torch._int_mm(a, b.t()))
