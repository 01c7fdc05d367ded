"""With torch: what compilers, graphs and operators do to a hook, and a task from a captured program that the lint accepts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import keepfast as package  # noqa: E402
from keepfast.gpu.messages import Mutate, Mutated  # noqa: E402
from keepfast.harvest import folder  # noqa: E402
from keepfast.model import Task  # noqa: E402
from keepfast.task.load import load  # noqa: E402
from keepfast.task.onboard_captured import CapturedOrigin  # noqa: E402
from keepfast.task.onboard_python import PythonOrigin  # noqa: E402
from keepfast.task.onboard_torch import init  # noqa: E402
from tests.harvest.conftest import Program, Shown  # noqa: E402
from tests.oracle import kit  # noqa: E402

SEEDS = ((1, 2, 3, 4), (5, 6, 7, 8))
LIB = """
import torch

def f(x, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k=2):
        return x * k

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None

@torch.library.custom_op("harvested::scale", mutates_args=())
def scale(x: torch.Tensor, k: float) -> torch.Tensor:
    return x * k

@scale.register_fake
def _(x, k):
    return torch.empty_like(x)
"""
MAIN = """
import lib, threading, torch
compiled = torch.compile(lambda x: lib.f(x) + 1, backend="aot_eager", fullgraph=True)
for _ in range(3): compiled(torch.randn(4, 4))
lib.f(torch.randn(2, 8))
lib.Double.apply(torch.randn(3, requires_grad=True)).sum().backward()
operator = torch.compile(lambda x: torch.ops.harvested.scale(x, 2.0) @ x, backend="aot_eager", fullgraph=True)
for _ in range(4): operator(torch.randn(8, 8))
lib.scale(torch.randn(5), 3.0)
torch.nn.functional.linear(torch.randn(2, 8), torch.randn(3, 8))
thread = threading.Thread(target=lambda: torch.nn.functional.linear(torch.randn(6, 8), torch.randn(3, 8)))
thread.start(); thread.join()
"""


@pytest.fixture
def torched(program: Program) -> Program:
    program.write("lib.py", LIB)
    program.write("main.py", MAIN)
    return program


def shapes(shown: Shown) -> dict[tuple[int, ...], int]:
    return {c.values[0].shape: c.seen for c in shown.captured.kinds}


def test_compiled_code_runs_as_it_did_and_its_calls_are_not_claimed(torched: Program) -> None:
    shown = torched.python("lib:f", "main.py")
    assert (shown.code, shown.captured.errors) == (0, 0)
    assert shapes(shown) == {(2, 8): 1}


def test_an_autograd_function_by_its_class(torched: Program) -> None:
    shown = torched.python("lib:Double", "main.py")
    assert (shown.code, shapes(shown)) == (0, {(3,): 1})
    assert [(v.name, v.text) for v in shown.captured.kinds[0].values] == [("x", ""), ("k", "2")]


def test_an_operator_of_its_own_is_seen_from_compiled_code_too(torched: Program) -> None:
    shown = torched.python("torch.ops.harvested.scale", "main.py")
    assert (shown.code, shapes(shown)) == (0, {(8, 8): 4, (5,): 1})
    assert shown.captured.operator.startswith("harvested::scale(Tensor x, float k)")


def test_an_operator_of_aten_is_seen_from_every_thread(torched: Program) -> None:
    shown = torched.python("torch.ops.aten.mm", "main.py")
    assert shown.code == 0, "what is compiled with fullgraph=True still is"
    assert {(2, 8), (6, 8)} <= shapes(shown).keys()


def test_a_function_on_the_gpu_that_is_captured_into_a_graph_is_only_counted(program: Program) -> None:
    program.write(
        "main.py",
        """
        import lib, torch
        torch.cuda.is_current_stream_capturing = lambda: True
        kind = type("Cuda", (torch.Tensor,), {"device": property(lambda self: torch.device("cuda"))})
        lib.f(torch.randn(4).as_subclass(kind))
        """,
    )
    shown = program.python("lib:f", "main.py")
    assert (shown.code, shown.calls, shown.captured.in_graphs, shown.captured.samples) == (0, 1, 1, ())
    assert any("replays are not seen" in note for note in shown.captured.notes)


def test_types_that_numpy_has_not(program: Program) -> None:
    program.write(
        "main.py",
        """
        import lib, torch
        x = torch.tensor([0.0, 1.5, -2.0]).to(torch.float8_e4m3fn)
        lib.g(x, torch.ones(2, 3, dtype=torch.bfloat16).T, torch.ones(1, 3).expand(4, 3))
        """,
    )
    program.write("lib.py", "def f(x): return x\ndef g(x, y, z): return x\n")
    shown = program.python("lib:g", "main.py")
    assert (shown.code, shown.captured.errors) == (0, 0)
    (sample,) = shown.captured.samples
    assert [(p.dtype, p.shape, p.stride, p.nbytes) for p in sample.parts] == [
        ("float8_e4m3fn", (3,), (1,), 3), ("bfloat16", (3, 2), (1, 3), 12), ("float32", (4, 3), (0, 1), 48),
    ]  # fmt: skip
    assert {p.name: (p.low, p.high) for p in shown.captured.profiles} == {"x": (-2.0, 1.5), "y": (1.0, 1.0), "z": (1.0, 1.0)}


# --------------------------------------------------------------------------------------------- from a program to a task

OPS = """
import torch


def route(x, table, index, weight, scale=2.0):
    # rows of a table by index, weighted
    return (table[index] * x * scale).to(x.dtype) + weight
"""
USER = """
import torch, ops
torch.manual_seed(0)
for step in range(40):
    m = (8, 8, 8, 32, 3)[step % 5]
    x = torch.randn(m, 64)
    x[:, 5] = 40.0  # an outlier channel
    index = torch.randint(0, 12, (m,)) * (torch.rand(m) < 0.5)  # half of them the first
    ops.route(x.bfloat16(), torch.randn(48, 64).bfloat16(), index, torch.ones(64).bfloat16())
"""


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, run once."""
    program = Program(tmp_path_factory.mktemp("routed"))
    program.write("ops.py", OPS)
    program.write("user.py", USER)
    (program.folder / ".git").mkdir()
    shown = program.python("ops:route", "user.py")
    assert (shown.code, shown.calls) == (0, 40)
    folder.write(program.folder / "d", shown.captured, shown.paths)
    return program.folder


@pytest.fixture
def routed(once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of its folder."""
    shutil.copytree(once, tmp_path / "routed", ignore=shutil.ignore_patterns("work*"))
    monkeypatch.chdir(tmp_path / "routed")


def judged(task: Task) -> tuple[dict[str, Any], Mutated]:
    """A draw of the first case; the oracle's own answer is right and zeros are not; the lint."""
    with kit.served(task) as judge:
        described = judge.describe()
        assert described.error == ""
        layout = described.layouts[0]
        filled, bank = judge.fill(layout.case, *SEEDS)
        assert filled.error == ""
        values = kit.values_in(bank[0], layout)
        right = {"out": (values["table"][values["index"]] * values["x"] * 2.0).to(torch.bfloat16) + values["weight"]}
        assert judge.ask(layout, bank[0], right).wrong == ""
        assert judge.ask(layout, bank[0], {"out": torch.zeros_like(right["out"])}).wrong
        said: Mutated = judge.asked(Mutate(), Mutated)[0]
    return values, said


@pytest.mark.parametrize("contents", [False, True])
def test_the_lint_accepts_what_is_made_of_a_program(routed: None, contents: bool) -> None:
    written = init(Path("tasks/t"), CapturedOrigin("d", PythonOrigin("ops.py:route", ()), contents=contents))
    task = load(Path("tasks/t"))
    assert task.signature.text == "route(Tensor x, Tensor table, Tensor index, Tensor weight, float scale=2.0) -> Tensor"
    assert {(c.name, c.use) for c in task.cases} == {("m8", "both"), ("m3", "both"), ("m32", "both")}
    assert task.cases[0].name == "m8"
    assert sum(task.weights()) == pytest.approx(1)
    values, said = judged(task)
    assert said.error == "", said
    assert all(m.killed for m in said.mutants)
    assert int(values["index"].max()) < 12, "as in the program, not as the table allows"
    if contents:
        column = values["x"][:, 5].float()
        assert bool((column > 35).all()), "outliers are where they were"
    else:
        assert any("has outliers" in note for note in written.notes)


def test_two_draws_of_captured_contents_are_not_the_same(routed: None) -> None:
    init(Path("tasks/t"), CapturedOrigin("d", PythonOrigin("ops.py:route", ()), contents=True))
    task = load(Path("tasks/t"))
    with kit.served(task) as judge:
        layout = judge.layout(task.cases[0].name)
        draws = [kit.values_in(judge.fill(layout.case, (i, 2, 3, 4), (5, 6, 7, i))[1][0], layout)["x"] for i in range(4)]
    assert not any(torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])


def test_the_commands_one_after_the_other(routed: None) -> None:
    keepfast = [sys.executable, "-m", "keepfast"]
    python = [sys.executable, "user.py"]
    env = os.environ | {"PYTHONPATH": str(Path(package.__file__).resolve().parents[1])}
    assert subprocess.run([*keepfast, "capture", "ops.py:route", "--", *python], check=False, env=env).returncode == 0
    data = json.loads(Path("captured/route/captured.json").read_text())
    assert (data["schema"], data["calls"], data["versions"]["torch"]) == ("keepfast.captured/1", 40, torch.__version__)
    made = subprocess.run([*keepfast, "init", "r", "--captured", "captured/route"], check=False, env=env, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "same as before, not proven right" in made.stdout
    again = subprocess.run([*keepfast, "capture", "ops.py:route", "--", *python], check=False, env=env, capture_output=True, text=True)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_an_operator_that_was_captured(program: Program) -> None:
    program.write("user.py", "import torch\nfor m in (4, 9, 33): torch.nn.functional.gelu(torch.randn(m, 16), approximate='tanh')\n")
    (program.folder / ".git").mkdir()
    shown = program.python("torch.ops.aten.gelu", "user.py")
    assert (shown.code, shown.calls) == (0, 3)
    folder.write(program.folder / "d", shown.captured, shown.paths)
    init(Path("tasks/t"), CapturedOrigin("d", PythonOrigin("", ())))
    task = load(Path("tasks/t"))
    assert (task.axes, task.oracle, task.languages) == (("m",), "reference", ("torch",))
    assert '"approximate": "tanh"' in (Path(task.folder) / "reference.py").read_text()
    with kit.served(task) as judge:
        assert judge.describe().error == ""
        assert judge.asked(Mutate(), Mutated)[0].error == ""
