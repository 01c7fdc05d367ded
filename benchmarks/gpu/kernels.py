"""The kernels of the GPU evidence: each builds `calls` launches on rows of bfloat16 in the memory it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

WIDTH = 4096  # elements a row
EPS = tl.constexpr(1e-6)


@triton.jit
def rms_norm(x, w, y, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    v = tl.load(x + row * N + at).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / N + EPS)
    tl.store(y + row * N + at, (v * scale * tl.load(w + at).to(tl.float32)).to(tl.bfloat16))


@triton.jit
def rms_norm_again(x, w, y, unused, N: tl.constexpr):
    """The same arithmetic under another name, with an argument more: another image, the same meaning."""
    row = tl.program_id(0)
    at = tl.arange(0, N)
    v = tl.load(x + row * N + at).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / N + EPS)
    tl.store(y + row * N + at, (v * scale * tl.load(w + at).to(tl.float32)).to(tl.bfloat16))


@triton.jit
def rms_norm_more(x, w, y, N: tl.constexpr, ROWS: tl.constexpr):
    """Blocks beyond the rows compute the first rows once more, with the same result."""
    row = tl.program_id(0) % ROWS
    at = tl.arange(0, N)
    v = tl.load(x + row * N + at).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / N + EPS)
    tl.store(y + row * N + at, (v * scale * tl.load(w + at).to(tl.float32)).to(tl.bfloat16))


def rms(rows: int, variant: str) -> Callable[[Any, Any], Callable[[], object]]:
    """RMSNorm of `rows` rows; inputs are the rows and one row of weights. `more`: one row in a hundred is computed twice."""

    def call(given: Any, made: Any) -> Callable[[], object]:
        x, w = given[:rows], given[rows]
        if variant == "again":
            return lambda: rms_norm_again[(rows,)](x, w, made, 0, N=WIDTH, num_warps=8)
        if variant == "more":
            return lambda: rms_norm_more[(rows + rows // 100,)](x, w, made, N=WIDTH, ROWS=rows, num_warps=8)
        return lambda: rms_norm[(rows,)](x, w, made, N=WIDTH, num_warps=8)

    return call


def gemm(variant: str) -> Callable[[Any, Any], Callable[[], object]]:
    def call(given: Any, made: Any) -> Callable[[], object]:
        a, b = given[:WIDTH], given[WIDTH:]
        return lambda: torch.mm(a, b, out=made)

    return call


def spec(kernel: str, variant: str) -> tuple[int, int, int, Callable[[Any, Any], Callable[[], object]]]:
    """(calls a launch, input rows, output rows, maker) of a kernel."""
    if kernel == "rms16":
        return 400, 17, 16, rms(16, variant)
    if kernel == "rms4096":
        return 50, 4097, 4096, rms(4096, variant)
    if kernel == "gemm4096":
        return 5, 2 * WIDTH, WIDTH, gemm(variant)
    raise ValueError(kernel)
