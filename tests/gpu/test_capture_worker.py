"""The capture worker on a real GPU, without walls: one process a candidate, plans read back, errors as they are meant.

    python -m pytest tests/gpu/test_capture_worker.py

Needs torch, triton, cuda-bindings, gcc, and for one test nvcc.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keepfast import native, wire
from keepfast.gpu import layout as layouts
from keepfast.gpu import messages
from keepfast.gpu import plan as plans
from keepfast.gpu.layout import Given, Layout, Output, Tensor
from keepfast.gpu.messages import Capture, Captured, CaseWork, Ready, Warm
from keepfast.gpu.plan import Copy, Kernel, Memset, Plan

pytestmark = pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no GPU")

GIB = 1 << 30
ARENAS = 8
STEP = 1 << 36  # as the judge places them
READY_S, CAPTURE_S = 150.0, 240.0  # the first one reads torch from a cold disk
SIZES = {"float32": 4, "bfloat16": 2, "int64": 8}


def laid(case: str, given: tuple[Any, ...], outputs: tuple[tuple[str, str, tuple[int, ...]], ...]) -> Layout:
    at, made = 0, []
    for name, dtype, shape, *written in given:
        size = SIZES[dtype]
        for n in shape:
            size *= n
        made.append(Given(name, "tensor", Tensor(dtype, shape, layouts.contiguous(shape), at, at, size, bool(written))))
        at += layouts.up(max(size, 1))
    results = []
    for name, dtype, shape in outputs:
        size = SIZES[dtype]
        for n in shape:
            size *= n
        results.append(Output(name, dtype, shape, size))
    return Layout(case, (("n", 8),), tuple(made), tuple(results), max(at, 512))


def add(case: str = "c1", rows: int = 256, columns: int = 1024) -> Layout:
    shape = (rows, columns)
    return laid(case, (("x", "float32", shape), ("w", "float32", (columns,))), (("y", "float32", shape),))


IN_PLACE = laid("c1", (("x", "float32", (256, 1024), True), ("w", "float32", (1024,))), ())
MATMUL = laid("c1", (("a", "bfloat16", (1024, 1024)), ("b", "bfloat16", (1024, 1024))), (("c", "bfloat16", (1024, 1024)),))


class Found(msgspec.Struct):
    answer: Captured
    plans: tuple[Plan, ...]
    ready_s: float


class Taken(Exception):
    """Something else lies where the arena was to be."""


def captured(home: Path, source: str, cases: tuple[tuple[Layout, int], ...], library: bytes = b"", **more: Any) -> Found:
    """A worker's whole life; the next one's, as the judge does it, when the addresses that were drawn are taken."""
    for _ in range(ARENAS):
        with suppress(Taken):
            return lived(home, source, cases, library, **more)
    pytest.fail(f"{ARENAS} workers in a row found their addresses taken")


def lived(home: Path, source: str, cases: tuple[tuple[Layout, int], ...], library: bytes, **more: Any) -> Found:
    libraries = more.pop("libraries", ("torch", "triton"))
    max_bytes = more.pop("max_bytes", 8 * GIB)
    pins = more.pop("pins", ())
    ours, theirs = socket.socketpair()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "HOME": str(home)}
    argv = [sys.executable, "-m", "keepfast.capture.worker", str(theirs.fileno())]
    process = subprocess.Popen(argv, pass_fds=(theirs.fileno(),), env=env)
    theirs.close()
    try:
        base = STEP * random.randrange(64, 512)
        messages.send(ours, Warm(base, 16 * GIB, str(native.library("arena")), 0, libraries, max_bytes))
        ready = msgspec.convert(wire.receive(ours, timeout_s=READY_S)[0], Ready)
        if ready.detail == "arena":
            raise Taken
        assert ready.ok, ready.detail
        files = msgspec.msgpack.encode((("kernel/kernel.py", source.encode()),))
        memory = [wire.memfd("plan", plans.MAX_BYTES) for _ in cases]
        work = tuple(CaseWork(layout, calls, pins, layout.set_bytes) for layout, calls in cases)
        samples = [filled(bytes(layout.set_bytes)) for layout, _ in cases]
        request = {"language": "triton", "entry_path": "kernel/kernel.py", "entry_symbol": "kernel"} | more
        fds = [filled(files), *([filled(library)] if library else []), *memory, *samples]
        messages.send(ours, Capture(library=bool(library), files_bytes=len(files), cases=work, **request), fds)
        answer = msgspec.convert(wire.receive(ours, timeout_s=CAPTURE_S)[0], Captured)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        ours.close()
    found = Found(answer, tuple(read(fd, case.plan_bytes) for fd, case in zip(memory, answer.cases, strict=False)), ready.seconds)
    print(ready.seconds, answer)
    for plan in found.plans:
        print(described(plan))
        assert all(base <= s.address and s.end <= base + 16 * GIB for s in plan.segments)
    return found


def filled(data: bytes) -> int:
    fd = wire.memfd("data", len(data))
    os.pwrite(fd, data, 0)
    return fd


def read(fd: int, size: int) -> Plan:
    with mmap.mmap(fd, plans.MAX_BYTES, prot=mmap.PROT_READ) as memory:
        return plans.decode(memory[:size])


def described(plan: Plan) -> str:
    kernels = [
        (k.name[:50], k.image, k.grid, k.block, k.shared, k.cluster, k.cooperative, k.carveout, k.scheduling, len(k.parameters))
        for k in plan.kernels()[:4]
    ]
    blocks = [len(b.data) for b in plan.blocks]
    edges = [(n.after, n.early) for n in plan.nodes[:6]]
    return f"{plan.case}: {len(plan.nodes)} nodes, images {[len(i) for i in plan.images]}, blocks {blocks}, {edges}, {kernels}"


TRITON = """
import torch, triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"B": 1024}, num_warps=w) for w in (2, 4, 8)], key=["n"])
@triton.jit
def add(x, w, y, n, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row * n + at, tl.load(x + row * n + at, mask=at < n) + tl.load(w + at, mask=at < n), mask=at < n)

def kernel(x, w):
    y = torch.empty_like(x)
    add[(x.shape[0],)](x, w, y, x.shape[1])
    return y
"""


def launched(*options: str) -> str:
    """The kernel without its tuner, once for each of `options`."""
    one = "    add[(x.shape[0],)](x, w, y, x.shape[1])"
    return TRITON.replace(one, "\n".join(f"{one[:7]}.fn{one[7:-1]}, {option})" for option in options))


def test_triton_with_a_pinned_configuration(tmp_path: Path) -> None:
    found = captured(tmp_path, TRITON, ((add(), 50), (add("c2", 64, 512), 7)), pins=(("add", 2),))
    assert (found.answer.error, found.answer.detail) == ("", "")
    assert found.answer.autotuned[0][0] == "add"
    assert [p.calls for p in found.plans] == [50, 7]
    for plan in found.plans:
        assert len(plan.nodes) == plan.calls
        assert len(plan.images) == 1
        assert all(k.block == (256, 1, 1) for k in plan.kernels()), "eight warps"
        unset = {(k.carveout, k.cluster) for k in plan.kernels()}
        assert unset == {(-1, (0, 0, 0))}, "what nobody set reads as not set"
        assert {k.scheduling for k in plan.kernels()} <= {0, 1}, "Triton asks for clusters to be spread even where there are none"
        assert plan.blocks == ()


def test_two_specialisations_of_one_kernel_in_one_call(tmp_path: Path) -> None:
    found = captured(tmp_path, launched("B=2048", "B=1024"), ((add(), 20),))
    assert found.answer.error == ""
    plan = found.plans[0]
    assert [k.image for k in plan.kernels()] == [0, 1] * 20
    assert len(plan.images) == 2


def test_clusters_and_programmatic_edges(tmp_path: Path) -> None:
    found = captured(tmp_path, launched("B=1024, num_ctas=2", "B=1024, launch_pdl=True"), ((add(), 5),))
    assert found.answer.error == ""
    plan = found.plans[0]
    assert plan.kernels()[0].cluster == (2, 1, 1)
    assert plan.kernels()[0].scheduling == 1
    assert [n.after for n in plan.nodes] == [() if i % 2 == 0 else (i - 1,) for i in range(10)]
    assert [n.early for n in plan.nodes] == [n.after for n in plan.nodes]


@pytest.mark.parametrize(
    ("body", "layout"),
    [
        ("return a @ b", MATMUL),
        ("return torch.softmax(a @ b, -1)", MATMUL),
        ("return torch.nn.functional.scaled_dot_product_attention(a.view(1, 16, 64, 1024), b.view(1, 16, 64, 1024), "
         "b.view(1, 16, 64, 1024)).reshape(1024, 1024)", MATMUL),
        ("c = torch.empty_like(a)\n    c.copy_(a)\n    c[:, :512].copy_(b[:, 512:])\n    return c.zero_() if False else c", MATMUL),
        ("return compiled(a, b)", MATMUL),
    ],
)  # fmt: skip
def test_what_torch_launches(tmp_path: Path, body: str, layout: Layout) -> None:
    compiled = "compiled = torch.compile(lambda a, b: torch.softmax(a.float() * b, -1).to(a.dtype))"
    source = f"import torch\n{compiled}\ndef kernel(a, b):\n    {body}\n"
    found = captured(tmp_path, source, ((layout, 6),), language="torch")
    assert found.answer.error == ""
    assert {type(n.work) for n in found.plans[0].nodes} <= {Kernel, Memset, Copy}


def test_in_place_entries(tmp_path: Path) -> None:
    found = captured(tmp_path, "def kernel(x, w):\n    x.add_(w)\n", ((IN_PLACE, 9),), language="torch")
    assert found.answer.error == ""
    assert found.plans[0].results == ((),) * 9


def test_a_fork_that_joins(tmp_path: Path) -> None:
    source = """
import torch
side = torch.cuda.Stream()

def kernel(x, w):
    here = torch.cuda.current_stream()
    side.wait_stream(here)
    a = x * 2
    with torch.cuda.stream(side):
        b = x + w
    here.wait_stream(side)
    return a + b
"""
    found = captured(tmp_path, source, ((add(), 5),), language="torch")
    assert found.answer.error == ""
    assert [len(n.after) for n in found.plans[0].nodes if n.call == 0] == [0, 0, 2]


CUDA = """
extern "C" __global__ void add(const float *x, const float *w, float *y) {
    int at = blockIdx.x * 1024 + threadIdx.x;
    y[at] = x[at] + w[threadIdx.x];
}
extern "C" int keepfast_call(const unsigned long long *w) {
    add<<<256, 1024, 0, (cudaStream_t)w[4]>>>((const float *)w[0], (const float *)w[1], (float *)w[2]);
    return (int)cudaGetLastError();
}
"""


@pytest.mark.parametrize(("change", "error"), [("", ""), ("(cudaStream_t)w[4]", "graph")])
def test_the_c_abi_without_torch(tmp_path: Path, change: str, error: str) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    (tmp_path / "a.cu").write_text(CUDA.replace(change, "0") if change else CUDA)
    subprocess.run([nvcc, "-shared", "-Xcompiler=-fPIC", "-arch=native", "-cudart=static", "a.cu", "-o", "a.so"], cwd=tmp_path, check=True)
    library = (tmp_path / "a.so").read_bytes()
    found = captured(tmp_path, "", ((add(), 30),), library, language="cuda", entry_path="kernel/kernel.cu", libraries=())
    assert found.answer.error == error
    assert found.ready_s < 2
    if not error:
        assert [k.name for k in found.plans[0].kernels()] == ["add"] * 30
        assert [len(data) for _, data in found.plans[0].kernels()[0].parameters] == [8, 8, 8]


HEAD = "import torch, ctypes\nside = torch.cuda.Stream()\nkept = []\n"


MALLOC = "assert ctypes.CDLL('libcuda.so.1').cuMemAlloc_v2(ctypes.byref(p), 4096) == 0, 'cudaMalloc'"
ASIDE = "with torch.cuda.stream(side):"


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (("y = x + w", "y[0, 0].item()", "return y"), "graph", "kernel/kernel.py:6: `y[0, 0].item()`"),
        (("y = x + w", "torch.cuda.synchronize()", "return y"), "graph", "kernel/kernel.py:6: `torch.cuda.synchronize()`"),
        (("return x + w.cpu().cuda()",), "graph", "kernel/kernel.py:5"),
        (("return x + torch.tensor([1.0], device='cuda')",), "graph", "kernel/kernel.py:5"),
        ((ASIDE, "    y = x + w", "return y"), "graph", "another stream is not joined"),
        (("side.wait_stream(torch.cuda.current_stream())", ASIDE, "    y = x + w", "return y"), "graph", "not joined"),
        (("with torch.cuda.stream(torch.cuda.default_stream()):", "    y = x + w", "return y"), "graph", "kernel/kernel.py:6"),
        (("p = ctypes.c_void_p()", MALLOC, "return x + w"), "graph", "kernel/kernel.py:6: `assert ctypes.CDLL("),
        (("return x + w + torch.rand_like(x)",), "graph", "kernel/kernel.py:5"),
        (("kept.append(x + w)", "return kept[0]"), "result", "memory"),
        (("return torch.compile(lambda a, b: a + b, mode='reduce-overhead')(x, w)",), "graph", "kernel/kernel.py:5"),
        (("return x.double() + w",), "result", "got a float64 tensor"),
        (("return torch.empty(1 << 40, device='cuda')",), "memory", "bytes were asked for"),
        (("return torch.empty_like(x)",), "nothing", "call 0 launched nothing"),
        (("at = torch.full((1,), 1 << 40, device='cuda')", "return x.view(-1)[at]"), "fault", ""),
        (("raise ValueError('no')",), "raised", "kernel/kernel.py:5: `raise ValueError('no')`: ValueError: no"),
        (("return torch.ops.no.such_thing(x)",), "raised", "kernel/kernel.py:5"),
    ],
)
def test_what_cannot_be_captured_says_why(tmp_path: Path, body: tuple[str, ...], error: str, words: str) -> None:
    source = "\n    ".join((f"{HEAD}def kernel(x, w):", *body, ""))
    found = captured(tmp_path, source, ((add(), 4),), language="torch")
    assert found.answer.error == error
    assert words in found.answer.detail


def test_a_kernel_that_does_not_compile(tmp_path: Path) -> None:
    found = captured(tmp_path, TRITON.replace("tl.arange(0, B)", "tl.arange(0, B + 1)"), ((add(), 4),))
    assert found.answer.error == "compile"
    assert "kernel/kernel.py" in found.answer.detail


def test_what_a_call_frees_stays_its_own_and_memory_has_an_end(tmp_path: Path) -> None:
    found = captured(tmp_path, "def kernel(x, w):\n    return ((x + w) * 2 - w).relu()\n", ((add("c1", 16, 1024), 1000),), language="torch")
    assert found.answer.error == ""
    plan = found.plans[0]
    assert len(plan.nodes) == 4000
    sizes = sum(s.size for s in plan.segments) / (1000 * 16 * 1024 * 4)
    assert 5.0 <= sizes < 5.2, "an argument and four results, for calls are made in any order"
    small = captured(tmp_path, "def kernel(x, w):\n    return x + w\n", ((add(), 1000),), language="torch", max_bytes=GIB // 2)
    assert small.answer.error == "memory"
