"""The human's reference.py with torch: what it may return, and the sentence for what it may not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from keepfast.errors import TaskError  # noqa: E402
from keepfast.model import Argument, Case  # noqa: E402
from keepfast.oracle.reference import Reference, seed_of  # noqa: E402
from tests.oracle import kit  # noqa: E402

CASE = Case("main", (("m", 3), ("n", 4)))


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "keepfast_reference", ModuleType("keepfast_reference"))


def reference(folder: Path, text: str, signature: str = "f(Tensor x) -> Tensor", **changes: Any) -> Reference:
    return Reference(kit.task(folder, text, signature, **changes), "cpu")


def returning(expression: str) -> str:
    return f"def inputs(case, rng):\n    return {expression}\n"


def refused(made: Reference, seed: tuple[int, ...] = (1,)) -> TaskError:
    with pytest.raises(TaskError) as error:
        made.inputs(CASE, seed)
    assert error.value.next_step
    return error.value


# --------------------------------------------------------------------------------------------- inputs()


def test_inputs_get_the_case_and_a_generator_that_the_seed_decides(tmp_path: Path) -> None:
    made = reference(tmp_path, returning("{'x': torch.randn(case.m, case['n'], generator=rng, device=rng.device)}"))
    one, same, other = (made.inputs(CASE, seed)["x"] for seed in ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 5)))
    assert one.shape == (3, 4)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_draw_that_forgets_the_generator_can_be_drawn_again(tmp_path: Path) -> None:
    made = reference(tmp_path, returning("{'x': torch.randn(3)}"))
    assert torch.equal(made.inputs(CASE, (5,))["x"], made.inputs(CASE, (5,))["x"])


def test_all_128_bits_of_a_seed_count() -> None:
    assert len({seed_of(words) for words in ((1, 2), (2, 1), (1, 2, 0), (1, 3), (0, 2))}) == 5
    assert 0 <= seed_of((2**32 - 1,) * 4) < 2**64


def test_inputs_come_in_schema_order_with_defaults_and_plain_scalars(tmp_path: Path) -> None:
    signature = "f(Tensor x, Tensor? bias, float eps=1e-6, int k=3, bool fast=True, str mode='up') -> Tensor"
    made = reference(
        tmp_path, "import numpy as np\n" + returning("{'bias': None, 'k': np.int32(5), 'x': torch.ones(2), 'eps': 2}"), signature
    )
    found = made.inputs(CASE, (1,))
    assert list(found) == ["x", "bias", "eps", "k", "fast", "mode"]
    assert [found[name] for name in list(found)[1:]] == [None, 2.0, 5, True, "up"]
    assert [type(found[name]) for name in ("eps", "k")] == [float, int]


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("{}", "inputs() returned [], the signature has ['x']"),
        ("{'x': torch.ones(3), 'y': 1}", "inputs() returned ['x', 'y'], the signature has ['x']"),
        ("[torch.ones(3)]", "inputs() returned a list"),
        ("{'x': None}", "is None, but the signature does not say `?`"),
        ("{'x': [1.0]}", "is a list, not a torch.Tensor"),
        ("{'x': torch.nn.Parameter(torch.ones(3))}", "is a Parameter, not a torch.Tensor"),
        ("{'x': torch.eye(3).to_sparse()}", "is a tensor that is not plain memory, not a torch.Tensor"),
        ("{'x': torch.ones(3, device='meta')}", "is on meta, rng is on cpu"),
        ("{'x': torch.ones(3, dtype=torch.complex64)}", "has dtype torch.complex64, which keepfast cannot hold"),
    ],
)
def test_what_inputs_may_not_return(tmp_path: Path, expression: str, what: str) -> None:
    error = refused(reference(tmp_path, returning(expression)))
    assert error.what == what
    assert error.where.startswith("reference.py, case main")


@pytest.mark.parametrize(
    ("kind", "value"), [("int", "1.5"), ("int", "2**63"), ("float", "'1'"), ("bool", "1"), ("str", "1"), ("int", "None")]
)
def test_scalars_of_a_wrong_kind(tmp_path: Path, kind: str, value: str) -> None:
    error = refused(reference(tmp_path, returning(f"{{'x': torch.ones(3), 'k': {value}}}"), f"f(Tensor x, {kind} k) -> Tensor"))
    assert error.where == "reference.py, case main, `k`"


def test_a_declared_dtype_is_held_to(tmp_path: Path) -> None:
    made = reference(tmp_path, returning("{'x': torch.ones(3)}"), arguments=(Argument("x", dtype="bfloat16"),))
    assert refused(made).what == "has dtype float32, [arguments] says bfloat16; keepfast never casts"


def test_a_file_that_is_not_there_or_lacks_a_function(tmp_path: Path) -> None:
    assert "no inputs(case, rng)" in refused(reference(tmp_path / "a", "")).what
    with pytest.raises(TaskError, match=r"no reference\(\.\.\.\)"):
        reference(tmp_path / "b", returning("{}")).working({"x": torch.ones(2)})
    made = kit.task(tmp_path / "c", "")
    (tmp_path / "c" / "reference.py").unlink()
    with pytest.raises(TaskError, match=r"there is no reference\.py"):
        Reference(made, "cpu")


# --------------------------------------------------------------------------------------------- reference()

X = torch.arange(6, dtype=torch.float32).reshape(2, 3)
WRITTEN = "f(Tensor(a!) x, Tensor y) -> Tensor(a!)"
BOTH = "f(Tensor(a!) x, Tensor y) -> Tensor"


def both(folder: Path, body: str, signature: str = "f(Tensor x) -> Tensor", **values: Any) -> tuple[Any, Any]:
    names = ", ".join(values)
    return reference(folder, f"def reference({names}):\n    {body}\n", signature).both(values)


def test_results_at_working_precision_and_in_float64(tmp_path: Path) -> None:
    working, exact = both(tmp_path, "return x / 3", x=X.bfloat16())
    assert (working["out"].dtype, exact["out"].dtype) == (torch.bfloat16, torch.float64)
    assert torch.equal(exact["out"], X.double() / 3)


@pytest.mark.parametrize("body", ["x += y", "return x + y", "return (x + y,)", "x.copy_(x + y)"])
def test_an_argument_written_in_place_by_mutation_or_by_return(tmp_path: Path, body: str) -> None:
    before = X.clone()
    working, exact = both(tmp_path, body, WRITTEN, x=before, y=X)
    assert list(working) == ["x"]
    assert torch.equal(working["x"], 2 * X)
    assert torch.equal(exact["x"], 2 * X.double())
    assert torch.equal(before, X)


@pytest.mark.parametrize("body", ["x += y; return x * 2", "return x + y, (x + y) * 2"])
def test_written_arguments_come_before_outputs(tmp_path: Path, body: str) -> None:
    working, _ = both(tmp_path, body, BOTH, x=X, y=X)
    assert list(working) == ["x", "out"]
    assert torch.equal(working["out"], 4 * X)


def test_scratch_and_what_was_not_given_are_no_results(tmp_path: Path) -> None:
    signature = "f(Tensor(a!) work, Tensor(b!)? x, Tensor y) -> Tensor"
    arguments = (Argument("work", role="scratch"),)
    for i, body in enumerate(("return y", "return work, x, y", "return (x, y) if x is not None else y")):
        made = reference(tmp_path / str(i), f"def reference(work, x, y):\n    {body}\n", signature, arguments=arguments)
        assert list(made.working({"work": X, "x": None, "y": X})) == ["out"]
        assert list(made.working({"work": X, "x": X, "y": X})) == ["x", "out"]


@pytest.mark.parametrize(
    ("body", "signature", "what"),
    [
        ("return x, x", "f(Tensor x) -> Tensor", "reference() returned 2 tensors, the signature has 0 written arguments and 1 outputs"),
        ("pass", "f(Tensor x) -> Tensor", "reference() returned 0 tensors"),
        ("return 1.0", "f(Tensor x) -> Tensor", "reference() returned a float, not a tensor"),
        ("return x.to('meta')", "f(Tensor x) -> Tensor", "reference() returned a tensor on meta, its inputs are on cpu"),
        ("return x.to(torch.complex64)", "f(Tensor x) -> Tensor", "reference() returned torch.complex64, which keepfast cannot hold"),
        ("return x.float()", "f(Tensor x) -> Tensor", "reference() was given float64 and returned float32"),
        ("return x.sum() if x.dtype == torch.float64 else x", "f(Tensor x) -> Tensor", "reference() returned float32[2, 3], and float64[]"),
        ("return x[:1]", "f(Tensor(a!) x) -> ()", "is float32[2, 3], reference() returned float32[1, 3]"),
        ("return x.half()", "f(Tensor(a!) x) -> ()", "is float32[2, 3], reference() returned float16[2, 3]"),
    ],
)
def test_what_reference_may_not_return(tmp_path: Path, body: str, signature: str, what: str) -> None:
    with pytest.raises(TaskError) as error:
        both(tmp_path, body, signature, x=X)
    assert error.value.what.startswith(what)
    assert error.value.where.startswith("reference.py")
    assert error.value.next_step


def test_whole_numbers_and_codes_stay_what_they_are(tmp_path: Path) -> None:
    for i, name in enumerate(("int8", "int64", "float8_e4m3fn", "bool")):
        working, exact = both(tmp_path / str(i), f"return x.to(torch.{name})", x=X)
        assert working["out"].dtype == exact["out"].dtype == getattr(torch, name)


def test_a_frozen_oracle_is_called_once_and_widened(tmp_path: Path) -> None:
    text = "calls = []\n\n\ndef reference(x):\n    calls.append(x.dtype)\n    return x.float()\n"
    made = reference(tmp_path, text, oracle="frozen")
    working, exact = made.both({"x": X})
    assert made.module.calls == [torch.float32]
    assert exact["out"].dtype == torch.float64
    assert torch.equal(working["out"].double(), exact["out"])


# --------------------------------------------------------------------------------------------- limit() and compare()


@pytest.mark.parametrize(("said", "wrong"), [("None", ""), ("True", ""), ("torch.tensor(True)", ""), ("False", "compare() said no")])
def test_what_compare_says(tmp_path: Path, said: str, wrong: str) -> None:
    made = reference(tmp_path, f"def compare(case, inputs, got, expected):\n    got['out'] += case.n\n    return {said}\n")
    got = {"out": X.clone()}
    assert made.compare(CASE, {"x": X}, got, got) == wrong
    assert torch.equal(got["out"], X)


def test_compare_may_say_a_sentence_and_limit_what_it_knows(tmp_path: Path) -> None:
    text = "def compare(case, inputs, got, expected):\n    return 'no'\n\n\n"
    text += "def limit(case, inputs):\n    return {'bytes': inputs['x'].nbytes}\n"
    made = reference(tmp_path / "a", text)
    assert made.compare(CASE, {"x": X}, {}, {}) == "no"
    assert made.limit(CASE, {"x": X}) == (24.0, 0.0)
    assert reference(tmp_path / "b", "").limit(CASE, {}) == (0.0, 0.0)
    with pytest.raises(TaskError, match=r"limit\(\) returned a int"):
        reference(tmp_path / "c", "def limit(case, inputs):\n    return 3\n").limit(CASE, {})
