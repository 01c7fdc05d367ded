"""The judge's ends against the real processes, as far as they go without a GPU: the oracle answers, the others say what is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from keepfast import native, wire
from keepfast.errors import MachineError, TaskError
from keepfast.gpu import layout
from keepfast.gpu.messages import Bank
from keepfast.judge.gpu.asking import Oracle
from keepfast.judge.gpu.launchers import Launchers
from keepfast.judge.gpu.workers import Captured, Pool, WorkerSpec
from keepfast.model import Task
from keepfast.walls.base import Walls
from tests.judge import tasks

from . import fakes
from .test_launchers import ARMS
from .test_workers import GOOD, subject

torch = pytest.importorskip("torch")
if torch.cuda.is_available():
    pytest.skip("what is said where there is no GPU", allow_module_level=True)

REFERENCE = """import torch


def inputs(case, rng):
    return {"x": torch.randn(case.n, generator=rng, device=rng.device)}


def reference(x):
    assert x.numel() > 0
    return x * x + 1
"""


def task(folder: Path, reference: str = REFERENCE) -> Task:
    (folder / "reference.py").write_text(reference)
    signature = tasks.SOFTMAX
    cases = tuple(type(c)(c.name, (("n", 64 + i),)) for i, c in enumerate(tasks.softmax_task().cases))
    return tasks.softmax_task(str(folder), signature=signature, languages=("triton",), axes=("n",), cases=cases)


def on_cpu(fd: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "keepfast.oracle", str(fd), "cpu")


def test_the_oracle_describes_draws_and_judges(tmp_path: Path) -> None:
    with Oracle(task(tmp_path), argv=on_cpu, audit="host") as oracle:
        described = oracle.describe()
        assert [found.case for found in described.layouts] == ["main", "odd"]
        first = described.layouts[0]
        bank, fd = oracle.fill("main", ((1, 2, 3, 4),), "host")
        audit = layout.audit(first)
        memory = wire.memfd("audit", audit.size)
        x = os.pread(fd, first.set_bytes, 0)
        os.pwrite(memory, x, 0)
        wrong = oracle.ask("main", memory, audit.size)
        assert "out" in wrong.wrong
        values = torch.frombuffer(bytearray(x), dtype=torch.float32)
        os.pwrite(memory, (values * values + 1).numpy().tobytes()[: first.outputs[0].nbytes], audit.results[0])
        assert oracle.ask("main", memory, audit.size).wrong == ""
        os.close(memory)
        os.close(fd)
        assert bank.draws == 1
        assert oracle.starts == 1


def test_a_mistake_in_the_reference_is_said_with_its_place(tmp_path: Path) -> None:
    with Oracle(task(tmp_path, REFERENCE.replace("x * x + 1", "x @ missing")), argv=on_cpu, audit="host") as oracle:
        with pytest.raises(TaskError, match="missing") as caught:
            oracle.describe()
        assert caught.value.where.startswith("reference.py:10")


def test_a_capture_worker_without_a_card_says_so(walls: Walls) -> None:
    spec = WorkerSpec(str(native.library("arena")), max_bytes=1 << 30, libraries=("torch", "triton"), size=1)
    with Pool(walls, spec) as pool, pytest.raises(MachineError, match="did not get ready") as caught:
        pool.capture(subject(GOOD), 30.0)
    assert "CUPTI" in caught.value.what or "GPU" in caught.value.what


COMPILING = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import torch, subprocess, sys

home = os.environ["HOME"]
os.makedirs(home + "/tree")
with open(home + "/tree/kernel.py", "w") as file:
    file.write("import triton, triton.language as tl\\n@triton.jit\\ndef rms_k(x, n, B: tl.constexpr):\\n    i = tl.arange(0, B)\\n"
               "    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)\\n")
sys.path.insert(0, home + "/tree")
import kernel
source = ASTSource(kernel.rms_k, {"x": "*fp32", "n": "i32", "B": "constexpr"}, {"B": 128})
binary = triton.compile(source, target=GPUTarget("cuda", 90, 32))
assert b"rms_k" in binary.asm["cubin"] and os.listdir(os.environ["TRITON_CACHE_DIR"])
from triton.runtime.build import compile_module_from_src
code = "#include <Python.h>\\nstatic struct PyModuleDef m = {PyModuleDef_HEAD_INIT, \\"stub\\"};\\n" \\
       "PyMODINIT_FUNC PyInit_stub(void) { return PyModule_Create(&m); }"
assert compile_module_from_src(code, "stub").__name__ == "stub"
subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True)
assert torch.ones(4).sum().item() == 4.0
"""


def test_torch_and_triton_compile_inside_the_walls(walls: Walls, reachable: Path) -> None:
    spec = WorkerSpec(str(native.library("arena")), max_bytes=1 << 30, read=(str(reachable),), size=1)
    with Pool(walls, spec, fakes.program(reachable, fakes.WORKER, "def before(): import torch, triton; ready()")) as pool:
        found = pool.capture(subject(COMPILING + GOOD), 50.0)
        assert isinstance(found, Captured), found


def test_a_launcher_without_a_card_says_so() -> None:
    fd = wire.memfd("bank", 4096)
    with Launchers() as launchers, launchers.start() as launcher, pytest.raises(MachineError, match="the card cannot be used"):
        launcher.open(fakes.layout(), ARMS, (Bank("host", 2, 2048, 4096), fd), ())
    os.close(fd)
