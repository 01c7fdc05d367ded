"""The compile gate: what kernels compile to on a machine without a GPU, and one sentence for each that does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from keepfast.errors import MachineError, TaskError
from keepfast.gpu.layout import Given, Layout, Output, Tensor, contiguous
from keepfast.judge import gate
from keepfast.judge.builder import Site
from keepfast.judge.endings import Failure
from keepfast.model import Arg, Build, Fact, File, Reason, Return, Signature, Task
from keepfast.walls.base import Walls
from tests.judge.tasks import softmax_task

NORM = Signature("norm", (Arg("x", "tensor"), Arg("eps", "float")), (Return("out"),), "norm(Tensor x, float eps) -> Tensor")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
HEAD = "import torch\nimport triton\nimport triton.language as tl\nfrom keepfast_tunables import BLOCK\n\n\n"
RIGHT = """
def widest(args):
    return triton.next_power_of_2(args["n"])


@triton.autotune([triton.Config({}, num_warps=w) for w in (4, 8)], key=["n"])
@triton.heuristics({"B": widest})
@triton.jit
def norm(x, out, n, eps, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v) / n + eps)
    tl.store(out + row * n + at, (v * scale).to(out.dtype.element_ty), mask=at < n)


def kernel(x, eps):
    assert x.is_cuda and x.device.type == "cuda" and torch.cuda.get_device_capability(x.device) == (9, 0)
    out = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    with torch.cuda.device(x.device):
        norm[(x[:, 0].numel(),)](x, out, x.shape[1], eps)
    return out
"""


def case(name: str, m: int, n: int, dtype: str = "bfloat16") -> Layout:
    x = Tensor(dtype, (m, n), contiguous((m, n)), 0, 0, 2 * m * n)
    given = (Given("x", "tensor", x), Given("eps", "float", None, 1e-6))
    return Layout(name, (("m", m), ("n", n)), given, (Output("out", dtype, (m, n), 2 * m * n),), 2 * m * n)


CASES = (case("large", 1 << 22, 8192), case("odd", 7, 33))  # the first is 64 GiB


def gpu_task(folder: Path, language: str, entry: str) -> Task:
    return softmax_task(
        str(folder), signature=NORM, languages=(language,), entry_path=entry, build=Build(flags=("-O3",)), tunables="kernel/tunables.toml"
    )


def judged(walls: Walls, folder: Path, text: str, language: str = "triton") -> tuple[Fact, ...] | Failure:
    entry = "kernel/kernel.cu" if language == "cuda" else "kernel/kernel.py"
    files = (File(entry, text.encode()), File("kernel/tunables.toml", b"[BLOCK]\nchoices = [64, 4096]\nvalue = 64\n"))
    return gate.gate(Site(walls, "sm_90"), gpu_task(folder, language, entry), files, CASES)


def facts(found: tuple[Fact, ...] | Failure) -> list[tuple[str, str]]:
    assert not isinstance(found, Failure), found
    return [(fact.name, fact.value) for fact in found]


def detail(found: tuple[Fact, ...] | Failure, reason: Reason = Reason.BUILD) -> str:
    assert isinstance(found, Failure), found
    assert found.reason is reason
    return found.detail


def line(text: str, part: str) -> int:
    return text.split(part)[0].count("\n") + 1


@pytest.fixture
def triton() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")


# --------------------------------------------------------------------------------------------- kernels in Python


@pytest.mark.usefixtures("triton")
def test_what_triton_compiles_for_each_case(walls: Walls, reachable: Path) -> None:
    found = facts(judged(walls, reachable, HEAD + RIGHT))
    assert found[0] == ("gate", "compiles for sm_90; nothing was timed")
    assert [name for name, _ in found[1:]] == ["kernel norm", "kernel norm"]
    assert [value.rsplit(" (")[1] for _, value in found[1:]] == ["case large)", "case odd)"]
    assert all("no spills" in value and "4 warps" in value and not value.startswith("0 ") for _, value in found[1:])


@pytest.mark.usefixtures("triton")
def test_a_kernel_that_does_not_compile_has_its_line(walls: Walls, reachable: Path) -> None:
    text = HEAD + RIGHT.replace("* v) / n", "* w) / n")
    assert detail(judged(walls, reachable, text)) == f"kernel.py:{line(text, '* w)')}: NameError: w is not defined (case large)"


@pytest.mark.usefixtures("triton")
def test_too_much_shared_memory_is_said(walls: Walls, reachable: Path) -> None:
    text = """
@triton.jit
def dots(x, out, n, B: tl.constexpr):
    at, other = tl.arange(0, 128), tl.arange(0, 64)
    total = tl.zeros((128, 128), tl.float32)
    for start in range(0, n, 64):
        a = tl.load(x + at[:, None] * n + other[None, :] + start)
        total = tl.dot(a, tl.trans(a), total)
    tl.store(out + at[:, None] * n + at[None, :], total.to(tl.bfloat16))


def kernel(x, eps):
    out = torch.empty_like(x)
    dots[(1,)](x, out, x.shape[1], B=BLOCK, num_stages=20)
    return out
"""
    said = detail(judged(walls, reachable, HEAD + text))
    assert said.startswith(f"kernel.py:{line(HEAD + text, 'dots[(1,)]')}: out of resource: shared memory")
    assert "Hardware limit: 232448" in said


@pytest.mark.usefixtures("triton")
def test_host_code_that_reads_results_is_followed_as_far_as_it_goes(walls: Walls, reachable: Path) -> None:
    text = HEAD + RIGHT.replace("    return out\n", "    return out * out.sum().item()\n")
    found = facts(judged(walls, reachable, text))
    assert found[0] == ("gate", "as far as it could be followed, compiles for sm_90; nothing was timed")
    assert found[-1][0] == "note"
    assert f"case odd: without a GPU the host code cannot be followed: kernel.py:{line(text, 'return out *')}" in found[-1][1]


@pytest.mark.usefixtures("triton")
def test_a_module_that_is_not_there(walls: Walls, reachable: Path) -> None:
    assert detail(judged(walls, reachable, "import no_such_module\n" + RIGHT)) == (
        "kernel.py:1: ModuleNotFoundError: No module named 'no_such_module'"
    )


@pytest.mark.usefixtures("triton")
def test_torch_without_a_kernel_of_its_own(walls: Walls, reachable: Path) -> None:
    text = "import torch\n\n\n@torch.compile\ndef kernel(x, eps):\n    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)\n"
    assert facts(judged(walls, reachable, text, "torch")) == [
        ("gate", "launches no kernel of its own that could be compiled; nothing was timed")
    ]


def test_python_is_read_before_anything_is_called(walls: Walls, reachable: Path) -> None:
    assert detail(judged(walls, reachable, "def kernel(x:\n")) == "kernel.py:1: '(' was never closed"
    assert facts(judged(walls, reachable, "import cutlass\n", "cute"))[0][1].endswith("nothing was timed")


def test_without_triton_it_says_what_to_install(walls: Walls, reachable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MachineError, match=r"torch is not installed(.|\n)*pip install torch"):
        judged(walls, reachable, "x = 1\n")


def test_a_report_is_held_to_its_form(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for data in (b"", b"[]", b'{"kernels": 3}', b"\xff"):
        path.write_bytes(data)
        assert detail(gate._report(path)) == "compiling left no report"
    path.write_bytes(b" " * (gate.MAX_REPORT + 1))
    assert "too large" in detail(gate._report(path))
    path.write_bytes(b'{"error": "import", "detail": "a.py:1: \\u001b[31mred\\nline"}')
    assert detail(gate._report(path)) == "a.py:1:  [31mred line"
    path.write_bytes(b'{"error": "machine", "detail": "old"}')
    with pytest.raises(MachineError, match="old"):
        gate._report(path)


# --------------------------------------------------------------------------------------------- nvcc

CUDA = """#include "keepfast.h"
#include "keepfast_tunables.h"
#include <cuda_bf16.h>
namespace norms {
__global__ void row(const __nv_bfloat16 *x, __nv_bfloat16 *out, int64_t n) {
    __shared__ float part[BLOCK];
    part[threadIdx.x] = __bfloat162float(x[blockIdx.x * n + threadIdx.x]);
    __syncthreads();
    out[blockIdx.x * n + threadIdx.x] = __float2bfloat16(part[BLOCK - 1 - threadIdx.x]);
}
}
int kernel(const uint16_t *x, double eps, uint16_t *out, int64_t m, int64_t n, void *stream) {
    norms::row<<<m, BLOCK, 0, (cudaStream_t)stream>>>((const __nv_bfloat16 *)x, (__nv_bfloat16 *)out, n);
    return (int)cudaGetLastError();
}
"""


@needs_nvcc
def test_what_nvcc_compiles(walls: Walls, reachable: Path) -> None:
    first, second = facts(judged(walls, reachable, CUDA, "cuda"))
    assert first == ("gate", "compiles for sm_90; nothing was timed")
    assert second[0] == "kernel norms::row"
    assert second[1].endswith("registers, no spills, 256 bytes of shared memory")
    assert detail(judged(walls, reachable, CUDA.replace("eps,", "eps;"), "cuda")).startswith("kernel.cu:12: ")


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("_Z3addPKfPfl", "add"),
        ("_ZN5norms3rowEPKf", "norms::row"),
        ("_ZN35_GLOBAL__N__822878a0_5_an_cu__Z1fPf3rowILi3EEEvPf", "row"),
        ("_Z3rowILi4EEvPf", "row"),
        ("plain_c", "plain_c"),
        ("_Z", "_Z"),
        ("_Z99short", "_Z99short"),
        ("", ""),
    ],
)
def test_names_can_be_read(name: str, plain: str) -> None:
    assert gate.readable(name) == plain


# --------------------------------------------------------------------------------------------- cases

REFERENCE = """import torch


def inputs(case, rng):
    print("this is no result")
    return {"x": torch.randn(case.m, case.n, generator=rng, device=rng.device).to(torch.bfloat16), "eps": float("inf")}


def reference(x, eps):
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
"""


def described(folder: Path, text: str) -> tuple[Layout, ...]:
    pytest.importorskip("torch")
    (folder / "reference.py").write_text(text)
    cases = msgspec.structs.replace(softmax_task().cases[0], name="large", axes=(("m", 1 << 22), ("n", 8192)))
    task = msgspec.structs.replace(gpu_task(folder, "triton", "kernel/kernel.py"), tunables="")
    return gate.described(msgspec.structs.replace(task, cases=(cases, *softmax_task().cases[1:])))


def test_cases_are_described_without_memory(tmp_path: Path) -> None:
    large, odd = described(tmp_path, REFERENCE)
    assert large.given[0].tensor is not None
    assert (large.given[0].tensor.shape, large.given[0].tensor.dtype) == ((1 << 22, 8192), "bfloat16")
    assert large.given[1].value == float("inf")
    assert (odd.outputs[0].shape, odd.outputs[0].dtype) == ((3, 7), "bfloat16")
    assert gate.element_types((large, odd)) == {"x": "bfloat16", "out": "bfloat16"}


def test_a_reference_that_wants_contents_sees_the_smallest_case(tmp_path: Path) -> None:
    text = REFERENCE.replace(
        "    return (x *", "    assert x.shape == (3, 7) or not hasattr(x, 'fake_mode') or x.sum().item()\n    return (x *"
    )
    large, odd = described(tmp_path, text)
    assert large.outputs == odd.outputs
    assert odd.outputs[0].dtype == "bfloat16"


def test_a_reference_that_fails_is_said(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot be described without a GPU: ZeroDivisionError"):
        described(tmp_path, REFERENCE.replace("print(", "print(1 // 0, "))
