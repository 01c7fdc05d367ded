"""`python -m tests.capture.triton_kernels OUT [CAPABILITY]`: Triton kernels of many kinds, compiled without a GPU, as a worker would hand
them over. Line 1 of what is printed: how many. OUT becomes msgpack of (label, name, image, Source).
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import msgspec
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice

from keepfast.capture import handover
from keepfast.capture.handover import Seen

try:
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon._runtime import GluonASTSource
except ImportError:  # other versions of Triton have it elsewhere
    gluon = None


@triton.jit
def rms(x, w, y, n, eps, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    tl.store(y + row * n + at, (v * scale * tl.load(w + at, mask=at < n)).to(tl.bfloat16), mask=at < n)


@triton.jit
def product(a, b, c, K, B: tl.constexpr):
    at = tl.arange(0, B)
    sums = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        left = tl.load(a + at[:, None] * K + k + at[None, :])
        right = tl.load(b + (k + at[:, None]) * B + at[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(c + at[:, None] * B + at[None, :], sums)


@triton.jit
def helped(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=0.0)
    v = tl.inline_asm_elementwise("{ tanh.approx.f32 $0, $1; }", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y + at, libdevice.erf(v), mask=at < n)


@triton.jit
def talks(x, n, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.device_print("v", v)
    tl.atomic_add(x + at, v, mask=at < n)


@triton.jit
def mapped(x, y, m, n, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[m, n], strides=[n, 1], block_shape=[B, B])
    target = tl.make_tensor_descriptor(y, shape=[m, n], strides=[n, 1], block_shape=[B, B])
    row = tl.program_id(0) * B
    for column in range(0, n, B):
        target.store([row, column], source.load([row, column]) * 2)


def scaled(x, y, n, B):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * B + gl.arange(0, B, layout=layout)
    gl.store(y + at, gl.load(x + at, mask=at < n) * 2, mask=at < n)


RMS = {"x": "*bf16", "w": "*bf16", "y": "*bf16", "n": "i32", "eps": "fp32", "B": "constexpr"}
ALIGNED = {(i,): [["tt.divisibility", 16]] for i in range(4)}
PRODUCT = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "K": "i32", "B": "constexpr"}
HELPED = {"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}


def kernels() -> list[tuple[str, Any, dict[str, object]]]:
    """(label, source, options)."""
    made: list[tuple[str, Any, dict[str, object]]] = [
        ("rms", ASTSource(rms, RMS, {"B": 1024}), {}),
        ("rms, another width", ASTSource(rms, RMS, {"B": 256}), {"num_warps": 8}),
        ("rms, aligned", ASTSource(rms, RMS, {"B": 1024}, ALIGNED), {"launch_pdl": True}),
        ("rms, few registers", ASTSource(rms, RMS, {"B": 4096}), {"maxnreg": 32, "enable_fp_fusion": False}),
        ("rms, all together", ASTSource(rms, RMS, {"B": 1024}), {"launch_cooperative_grid": True, "num_warps": 2}),
        ("rms, as ptxas is told", ASTSource(rms, RMS, {"B": 1024}), {"ptx_options": "--maxrregcount=64 -O2"}),
        ("product", ASTSource(product, PRODUCT, {"B": 64}, ALIGNED), {"num_stages": 4}),
        ("product, one stage", ASTSource(product, PRODUCT, {"B": 64}), {"num_stages": 1, "num_warps": 8}),
        ("helped", ASTSource(helped, HELPED, {"B": 512}), {}),
        ("talks", ASTSource(talks, {"x": "*i32", "n": "i32", "B": "constexpr"}, {"B": 128}), {}),
        ("mapped", ASTSource(mapped, {"x": "*bf16", "y": "*bf16", "m": "i32", "n": "i32", "B": "constexpr"}, {"B": 64}), {}),
    ]
    if gluon is not None:
        scaled.__annotations__ = {"B": gl.constexpr}
        made.append(("scaled, of Gluon", GluonASTSource(gluon.jit(scaled), HELPED, {"B": 512}), {}))
    return made


def main(out: str, capability: str = "90") -> None:
    seen, target, found = Seen(), GPUTarget("cuda", int(capability), 32), []
    for label, source, options in kernels():
        triton.compile(source, target=target, options=options)
        kernel = seen.kernels[-1]
        digest = hashlib.sha256(kernel.kernel).digest()
        found += [(label, kernel.metadata.name, kernel.kernel, source) for source in handover._source(digest, kernel)]
    Path(out).write_bytes(msgspec.msgpack.encode(found))
    print(len(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
