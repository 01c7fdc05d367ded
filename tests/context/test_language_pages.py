"""The kernels on the language pages are compiled, and run where this machine can: what a page shows must work as it stands."""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from tests.context.kit import code

SIGNATURE = "rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor"


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def python(folder: Path, script: str, **environment: str) -> str:
    """What `script` prints in a process of its own, with the page's kernel.py to import."""
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def header(folder: Path, dtype: str, entry: str) -> None:
    """keepfast.h as the builder writes it."""
    pytest.importorskip("msgspec")
    from keepfast.task import abi, signature
    from tests.judge.tasks import softmax_task

    task = softmax_task(signature=signature.parse(SIGNATURE), entry_path=entry)
    (folder / "keepfast.h").write_text(abi.header(task, dict.fromkeys(("x", "weight", "out"), dtype)))


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + eps) * weight


# ---- C


@pytest.fixture(scope="module")
def c_kernel(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not on PATH")
    folder = tmp_path_factory.mktemp("c")
    header(folder, "float32", "kernel/kernel.c")
    (folder / "kernel.c").write_text(code("languages/c", "c"))
    argv = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "kernel.c", "-o", "kernel.so", "-lm"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "kernel.so"))


@pytest.mark.parametrize("n", [1, 7, 32, 1000, 4097])
def test_c(c_kernel: ctypes.CDLL, n: int) -> None:
    rng = np.random.default_rng(n)
    x, weight = rng.standard_normal((3, n), dtype=np.float32), rng.standard_normal(n, dtype=np.float32)
    out = np.full_like(x, np.nan)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, weight, out)]
    status = c_kernel.kernel(pointers[0], pointers[1], ctypes.c_double(1e-6), pointers[2], ctypes.c_int64(3), ctypes.c_int64(n), None)
    assert status == 0
    np.testing.assert_allclose(out, rms_norm(x, weight, 1e-6), rtol=2e-5, atol=1e-6)


# ---- CUDA C++


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
@pytest.mark.parametrize("target", ["90a"])
def test_cuda(tmp_path: Path, target: str) -> None:
    header(tmp_path, "bfloat16", "kernel/kernel.cu")
    (tmp_path / "kernel.cu").write_text(code("languages/cuda", "cuda"))
    gencode = f"-gencode=arch=compute_{target},code=sm_{target}"
    for made in (["-cubin", "-o", "kernel.cubin"], ["-c", "-Xcompiler=-fPIC", "-o", "kernel.o"]):
        argv = ["nvcc", "-O3", "-Werror", "all-warnings", gencode, "kernel.cu", *made]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert b"rows" in (tmp_path / "kernel.cubin").read_bytes()


# ---- Triton

COMPILED = """
import kernel
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

kinds = {"x": "*bf16", "weight": "*bf16", "out": "*bf16", "n": "i32", "eps": "fp32", "BLOCK": "constexpr"}
for arch in (80, 90, 120):
    made = triton.compile(ASTSource(kernel.rows, kinds, {"BLOCK": 4096}), target=GPUTarget("cuda", arch, 32))
    print(arch, len(made.asm["cubin"]) > 1000)
"""
DOTS = """
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def dot(a, b, c, M: tl.constexpr, K: tl.constexpr):
    x = tl.load(a + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :])
    y = tl.load(b + tl.arange(0, K)[:, None] * 64 + tl.arange(0, 64)[None, :])
    tl.store(c + tl.arange(0, M)[:, None] * 64 + tl.arange(0, 64)[None, :], tl.dot(x, y))


def made(kind, arch, rows=64, k=64, warps=4):
    kinds = {"a": "*" + kind, "b": "*" + kind, "c": "*fp32", "M": "constexpr", "K": "constexpr"}
    source = ASTSource(dot, kinds, {"M": rows, "K": k})
    try:
        ptx = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps}).asm["ptx"]
    except triton.CompilationError:
        return "refused"
    found = re.search(r"(wgmma|tcgen05|mma)\\.(?:mma|sync).*?(tf32|e4m3|bf16|f16)\\.(?:tf32|e4m3|bf16|f16)|tcgen05\\.mma", ptx)
    return " ".join(g for g in found.groups() if g) or "tcgen05"


print(made("bf16", 90), made("bf16", 90, rows=16), made("bf16", 90, k=8), made("fp32", 90), sep=", ")
print(made("fp8e4nv", 90), made("fp8e4nv", 90, rows=16), made("fp8e4nv", 89), made("fp8e4nv", 80), sep=", ")
print(made("bf16", 100, rows=128), made("bf16", 100, warps=2), sep=", ")
"""
SAID = ["wgmma bf16, mma bf16, refused, wgmma tf32", "wgmma e4m3, mma f16, mma e4m3, refused", "tcgen05, mma bf16"]
INTERPRETED = """
import kernel
import torch

worst = 0.0
for n in (1, 7, 64, 1000):
    x, weight = torch.randn(3, n), torch.randn(n)
    wide = x.double()
    right = wide / torch.sqrt(wide.square().mean(1, keepdim=True) + 1e-6) * weight
    worst = max(worst, float((kernel.kernel(x, weight, 1e-6) - right).abs().max()))
print(worst < 1e-5)
"""


@pytest.mark.skipif(not (installed("triton") and installed("torch")), reason="triton and torch are not installed")
def test_triton(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(code("languages/triton", "python"))
    assert python(tmp_path, COMPILED).splitlines() == ["80 True", "90 True", "120 True"]
    assert python(tmp_path, INTERPRETED, TRITON_INTERPRET="1") == "True"


@pytest.mark.skipif(not installed("triton"), reason="triton is not installed")
def test_what_becomes_of_tl_dot(tmp_path: Path) -> None:
    """The traps that the Triton page speaks of, in the version that it names."""
    if not version("triton").startswith("3.6."):
        pytest.skip("the page speaks of Triton 3.6")
    assert python(tmp_path, DOTS).splitlines() == SAID


# ---- CuTe DSL

FAKES = """
import cutlass
import cutlass.cute as cute
import cuda.bindings.driver as cuda
import kernel
from cutlass.cute.runtime import make_fake_compact_tensor

n = cute.sym_int()
a, b, out = (make_fake_compact_tensor(cutlass.BFloat16, (n,), assumed_align=16) for _ in range(3))
made = cute.compile(kernel.launch, a, b, out, cuda.CUstream(0), options="--keep-ptx")
print("kernel_cutlass_add" in made.__ptx__ and ".target sm_90a" in made.__ptx__)
"""


def test_cute_reads(tmp_path: Path) -> None:
    tree = ast.parse(code("languages/cute", "python"))
    assert {n.name for n in tree.body if isinstance(n, ast.FunctionDef)} == {"add", "launch", "kernel"}


@pytest.mark.skipif(not installed("cutlass"), reason="nvidia-cutlass-dsl is not installed")
def test_cute_compiles(tmp_path: Path) -> None:
    text = code("languages/cute", "python")
    (tmp_path / "kernel.py").write_text(text if installed("torch") else text.replace("import torch\n", ""))
    assert python(tmp_path, FAKES, CUTE_DSL_ARCH="sm_90a").splitlines()[-1] == "True"
