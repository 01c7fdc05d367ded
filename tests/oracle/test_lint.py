"""The task lint with torch: tasks that cannot be judged are refused, and every wrong answer is caught on honest ones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from keepfast.errors import TaskError  # noqa: E402
from keepfast.gpu.messages import Mutated  # noqa: E402
from keepfast.model import Argument, Case, Rules, Task, Tolerance  # noqa: E402
from keepfast.oracle import draws, lint, mutants  # noqa: E402
from keepfast.oracle.lint import CASE_BYTES, Linter, chosen  # noqa: E402
from keepfast.oracle.mutants import Draw  # noqa: E402
from keepfast.oracle.reference import Reference  # noqa: E402
from keepfast.task.signature import parse  # noqa: E402
from tests.judge.tasks import softmax_task  # noqa: E402
from tests.oracle import kit  # noqa: E402


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "keepfast_reference", ModuleType("keepfast_reference"))


def linted(made: Task) -> Mutated:
    return Linter(Reference(made, "cpu")).run([(c, 1) for c in made.cases])


def refused(made: Task) -> TaskError:
    with pytest.raises(TaskError) as error:
        linted(made)
    assert error.value.where
    assert error.value.next_step
    return error.value


def square(folder: Path, body: str, *, draw: str = "torch.randn(case.m, case.n, generator=rng)", **changes: Any) -> Task:
    text = kit.SQUARE.replace("torch.randn(case.m, case.n, generator=rng, device=rng.device)", draw)
    return kit.task(folder, text.replace("return x * x + 1", body), **changes)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return x / 0 * 0", "reference() returned NaN or infinity in `out`"),
        ("return torch.where(x > 1, torch.inf, x)", "reference() returned NaN or infinity in `out`"),
        ("return x * 0", "reference() returned the same value for two different inputs"),
        ("return (x + 1e4) - 1e4", "reference() at working precision is wrong by the measure that kernels are held to: out["),
    ],
)
def test_a_reference_that_cannot_be_judged(tmp_path: Path, body: str, what: str) -> None:
    error = refused(square(tmp_path, body))
    assert error.what.startswith(what)
    assert error.where == "reference.py, case main"


def test_inputs_that_are_ignored(tmp_path: Path) -> None:
    text = kit.SQUARE.replace(
        '{"x":', '{"i": torch.randperm(5, generator=rng), "j": torch.randperm(5, generator=rng), "y": torch.randn(4), "x":'
    )
    text = text.replace("reference(x)", "reference(x, y, i, j)")
    indices = (Argument("i", role="index"), Argument("j", role="index"))
    signature = "f(Tensor x, Tensor y, Tensor i, Tensor j) -> Tensor"
    assert refused(kit.task(tmp_path / "a", text, signature, arguments=indices)).what == "reference() ignores its input `y`"
    uses = text.replace("x * x + 1", "x * x + y.sum()")
    assert refused(kit.task(tmp_path / "b", uses, signature, arguments=indices)).what == "reference() ignores its inputs `i`, `j`"
    joint = text.replace("x * x + 1", "x * x + y.sum() + i[j][0]")
    assert linted(kit.task(tmp_path / "c", joint, signature, arguments=indices)).error == ""


def test_an_input_of_few_values_is_not_said_to_be_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both draws of a case may have the same order of two sequences."""
    text = kit.SQUARE.replace('{"x":', '{"i": torch.tensor([FLIPS.pop(0)]), "x":').replace("reference(x)", "reference(x, i)")
    text = text.replace("x * x + 1", "x * x + i") + "\n\nFLIPS = [1] * 6 + [0] * 40\n"
    made = kit.task(tmp_path / "a", text, "f(Tensor x, Tensor i) -> Tensor", arguments=(Argument("i", role="index"),))
    assert linted(made).error == ""
    monkeypatch.setattr(lint, "AGAIN", 0)
    assert refused(made).what == "reference() ignores its input `i`"


UNMIXED = {"body": "return x - x.mean()", "draw": "torch.randn(case.m, case.n, dtype=torch.float64) + torch.randn(()) * 1e5"}


def test_contents_that_do_not_mix(tmp_path: Path) -> None:
    error = refused(square(tmp_path / "a", **UNMIXED))
    assert "times when two draws are mixed per element" in error.what
    assert 'refresh = "whole"' in error.next_step
    assert linted(square(tmp_path / "b", **UNMIXED, arguments=(Argument("x", refresh="whole"),))).error == ""
    fails = "if not bool((x.sort(-1).values == x).all()):\n        raise ValueError('not sorted')\n    return x * 2"
    error = refused(square(tmp_path / "c", fails, draw="torch.randn(case.m, case.n).sort(-1).values"))
    assert error.what == "reference() fails when two draws are mixed per element: not sorted"


def test_draws_of_different_shapes(tmp_path: Path) -> None:
    error = refused(square(tmp_path, "return x + 1", draw="torch.randn(case.m, int(torch.randint(5, 99, ())))"))
    assert error.what == "inputs() gave two draws of one case different shapes, strides, dtypes or scalars: `x`"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_mutant_dies_on_an_honest_task(tmp_path: Path, dtype: str) -> None:
    text = kit.RMSNORM.replace("torch.bfloat16", f"torch.{dtype}")
    found = linted(kit.task(tmp_path, text, kit.RMSNORM_SIGNATURE))
    assert found.error == ""
    assert all(m.killed and m.case for m in found.mutants)
    names = {m.name for m in found.mutants}
    assert {"zeros (x)", "stale output (residual)", "untouched (x)", "identity of residual (x)", "swapped outputs"} <= names
    assert ("half precision (x)" in names) == (dtype == "float32")


def test_survivors_are_listed_and_an_error(tmp_path: Path) -> None:
    found = linted(square(tmp_path / "a", "return x * x + 1", tolerance=Tolerance(scale=5000.0)))
    assert found.error.startswith("a wrong answer would pass: ")
    assert "half precision" in found.error
    assert {m.name for m in found.mutants if not m.killed} >= {"half precision", "off by one in a thousand"}
    forgiving = "return x * x + 1\n\n\ndef compare(case, inputs, got, expected):\n    return None"
    assert "zeros, constant, stale output" in linted(square(tmp_path / "b", forgiving)).error


def test_the_smallest_cases_are_linted_and_a_timed_one_among_them() -> None:
    def case(name: str, use: str = "both") -> Case:
        return Case(name, (), use=use)

    a, b, c, d = case("a", "correct"), case("b", "correct"), case("c", "correct"), case("d")
    assert chosen([(d, 4), (c, 3), (b, 2), (a, 1)]) == [a, b, d]
    assert chosen([(d, CASE_BYTES + 1), (c, 3), (b, 2), (a, 1)]) == [a, b, c]
    assert chosen([(d, CASE_BYTES + 2), (a, CASE_BYTES + 1)]) == [a]


# --------------------------------------------------------------------------------------------- mutants


def names(signature: str, *results: torch.Tensor) -> list[str]:
    """Mutants of a task whose results are these, all of them also its inputs."""
    task = softmax_task(signature=parse(signature))
    values = {a.name: r * 3 if r.dtype.is_floating_point else r + 1 for a, r in zip(task.signature.args, results, strict=False)}
    working = dict(zip(task.signature.results, results, strict=True))
    layout = draws.layout_of(task, Case("c", ()), values, draws.outputs_of(task, working))
    one = Draw(Case("c", ()), layout, values, working, working)
    other = Draw(Case("c", ()), layout, values, {k: v + 1 for k, v in working.items()}, working)
    return [name for name, _ in mutants.mutants(task, one, other)]


X = torch.arange(1, 13, dtype=torch.float32).reshape(3, 4) / 7


def test_mutants_fit_the_shape_and_type_of_the_result() -> None:
    common = ["zeros", "constant", "stale output", "first row only", "last row missing", "last column missing", "last tile missing"]
    assert names("f(Tensor x) -> Tensor", X) == [
        *common, "shifted by one", "transposed", "half precision", "off by one in a thousand", "identity of x",
    ]  # fmt: skip
    assert "transposed" in names("f(Tensor x) -> Tensor", X[:, :3])
    assert "one head missing" in names("f(Tensor x) -> Tensor", X.reshape(1, 3, 4))
    scalar = names("f(Tensor x) -> Tensor", torch.tensor(0.3))
    assert scalar == ["zeros", "stale output", "half precision", "off by one in a thousand", "identity of x"]
    for plain in (torch.arange(1, 5, dtype=torch.int32), X.bfloat16()):
        assert not {"half precision", "off by one in a thousand"} & set(names("f(Tensor x) -> Tensor", plain))


def test_several_results_are_mutated_one_at_a_time_and_swapped() -> None:
    found = names("f(Tensor(a!) x, Tensor(b!) y) -> ()", X, X + 2)
    assert {"untouched (x)", "untouched (y)", "identity of y (x)"} <= set(found)
    assert found[-1] == "swapped outputs"
    assert names("f(Tensor(a!) x, Tensor(b!) y) -> ()", X, X)[-1] != "swapped outputs"


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2"])
def test_codes_are_mutated_too(name: str) -> None:
    task = softmax_task(signature=parse("f(Tensor x) -> Tensor"))
    codes = torch.arange(64, dtype=torch.uint8).reshape(4, 16).view(getattr(torch, name))
    one = Draw(Case("c", ()), None, {"x": torch.ones(4, 16)}, {"out": codes}, {"out": codes})  # type: ignore[arg-type]
    found = [label for label, _ in mutants.mutants(task, one, one)]
    assert {"zeros", "last tile missing", "shifted by one"} <= set(found)


# --------------------------------------------------------------------------------------------- misread inputs, and the floor

LENGTHS = """
def inputs(case, rng):
    here = {"generator": rng, "device": rng.device}
    mask = torch.rand(case.m, case.n, **here) < 0.8
    lengths = torch.randint(case.n - 3, case.n + 1, (case.m,), **here)
    return {"x": 1 + torch.rand(case.m, case.n, **here), "mask": mask, "lengths": lengths}


def reference(x, mask, lengths):
    seen = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return torch.where(mask & seen, x, 0).sum(1)
"""


def test_inputs_are_misread(tmp_path: Path) -> None:
    made = kit.task(
        tmp_path, LENGTHS, "f(Tensor x, Tensor mask, Tensor lengths) -> Tensor",
        arguments=(Argument("lengths", role="index"), Argument("mask", role="index")),
    )  # fmt: skip
    found = {m.name: m.case for m in linted(made).mutants}
    for name in ("wrong mask mask", "one less in lengths", "tail of x unread", "computed in half precision"):
        assert found[name]


def test_a_floor_in_a_result_of_float32(tmp_path: Path) -> None:
    found = {m.name for m in linted(square(tmp_path, "return x * x + 1", rules=Rules(precision_floor="fp32"))).mutants if m.killed}
    assert "computed in tf32, below the floor" in found


def test_a_tolerance_in_which_the_floor_does_not_show(tmp_path: Path) -> None:
    wide = square(tmp_path, "return x * x + 1", rules=Rules(precision_floor="fp32"), tolerance=Tolerance(scale=4000.0))
    found = linted(wide)
    assert "computed in tf32, below the floor" in found.error
    assert "[tolerance] scale = " in found.next_step


def test_bfloat16_has_no_more_bits_than_its_floor(tmp_path: Path) -> None:
    x = torch.randn(100).to(torch.bfloat16)
    assert torch.equal(mutants.shortened(x, 8), x)
    assert not torch.equal(mutants.shortened(x, 4), x)
    x = torch.randn(1000, dtype=torch.float64)
    assert float((mutants.shortened(x, 11) / x - 1).abs().max()) <= 2.0**-11
