"""The human's reference.py, called in this process: what it may return, and the sentence for what it may not."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from keepfast.errors import TaskError
from keepfast.judge import oracle
from keepfast.judge.oracle import Oracle
from keepfast.judge.oracle_records import Request
from keepfast.model import Argument, Case, Task
from keepfast.task.signature import parse
from tests.judge.tasks import softmax_task

CASE = Case("main", (("m", 3), ("n", 4)))
HEAD = "import numpy as np\n"
PLAIN = "def inputs(case, rng):\n    return {'x': rng.standard_normal((case.m, case['n']), dtype=np.float32)}\n"
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """A reference.py from its text; what loading leaves in this process is taken back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "keepfast_reference", ModuleType("keepfast_reference"))
    numbers = itertools.count()

    def made(text: str) -> ModuleType:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        (folder / "reference.py").write_text(HEAD + text)
        return oracle.load_module(folder / "reference.py")

    return made


def task(signature: str = "f(Tensor x) -> Tensor", **changes: object) -> Task:
    return softmax_task(signature=parse(signature), **changes)


def returning(expression: str) -> str:
    return f"def inputs(case, rng):\n    return {expression}\n"


def refused(load: Load, made: Task, text: str) -> TaskError:
    with pytest.raises(TaskError) as error:
        oracle.inputs_of(load(text), made, CASE, (1,))
    return error.value


# --------------------------------------------------------------------------------------------- inputs()


def test_inputs_get_the_case_and_a_generator_that_the_seed_decides(load: Load) -> None:
    module = load(PLAIN)
    one, same, other = (oracle.inputs_of(module, task(), CASE, seed)["x"] for seed in ((1, 2), (1, 2), (1, 3)))
    assert one.shape == (3, 4)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_inputs_come_in_schema_order_with_defaults_filled_in(load: Load) -> None:
    made = task("f(Tensor x, Tensor? bias, float eps=1e-6, int k=3, bool fast=True) -> Tensor")
    found = oracle.inputs_of(load(returning("{'bias': None, 'k': np.int32(5), 'x': np.ones(2)}")), made, CASE, (1,))
    assert list(found) == ["x", "bias", "eps", "k", "fast"]
    assert (found["bias"], found["eps"], found["k"], found["fast"]) == (None, 1e-6, 5, True)


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("{}", "inputs() returned [], the signature has ['x']"),
        ("{'y': np.ones(3)}", "inputs() returned ['y'], the signature has ['x']"),
        ("{'x': np.ones(3), 'y': 1}", "inputs() returned ['x', 'y'], the signature has ['x']"),
        ("{'x': np.ones(3), 3: 1}", "inputs() returned ['3', 'x'], the signature has ['x']"),
        ("[np.ones(3)]", "inputs() returned a list"),
        ("None", "inputs() returned a NoneType"),
        ("{'x': None}", "is None, but the signature does not say `?`"),
        ("{'x': [1.0, 2.0]}", "is a list, not a NumPy array"),
        ("{'x': 1.0}", "is a float, not a NumPy array"),
        ("{'x': np.float32(1)}", "is a float32, not a NumPy array"),
        ("{'x': np.ma.ones(3)}", "is a MaskedArray, not a NumPy array"),
    ],
)
def test_what_inputs_may_not_return(load: Load, expression: str, what: str) -> None:
    error = refused(load, task(), returning(expression))
    assert error.what == what
    assert error.where.startswith("reference.py, case main")


@pytest.mark.parametrize(
    ("kind", "value"), [("int", "1.5"), ("int", "'1'"), ("float", "'1'"), ("bool", "1"), ("str", "1"), ("int", "None")]
)
def test_scalars_of_a_wrong_kind(load: Load, kind: str, value: str) -> None:
    error = refused(load, task(f"f(Tensor x, {kind} k) -> Tensor"), returning(f"{{'x': np.ones(3), 'k': {value}}}"))
    assert error.where == "reference.py, case main, `k`"
    assert kind in error.what or "None" in error.what


def test_a_declared_dtype_is_held_to(load: Load) -> None:
    made = task(arguments=(Argument("x", dtype="float32"), Argument("out", dtype="float32")))
    error = refused(load, made, returning("{'x': np.ones(3)}"))
    assert error.what == "has dtype float64, [arguments] says float32; keepfast never casts"


def test_a_reference_without_inputs(load: Load) -> None:
    assert "no inputs(case, rng)" in refused(load, task(), "").what
    with pytest.raises(TaskError, match=r"there is no reference\.py"):
        oracle.load_module(Path("/nowhere/reference.py"))


# --------------------------------------------------------------------------------------------- reference()


def asked(load: Load, made: Task, text: str, **values: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    worker = Oracle.__new__(Oracle)
    worker.task, worker.frozen, worker.module = made, "", load(text)
    return worker.both(CASE, values)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
WRITTEN = "f(Tensor(a!) x, Tensor y) -> Tensor(a!)"
BOTH = "f(Tensor(a!) x, Tensor y) -> Tensor"


def test_results_at_working_precision_and_in_float64(load: Load) -> None:
    working, exact = asked(load, task(), "def reference(x):\n    return x / 3\n", x=X)
    assert working["out"].dtype == np.float32
    assert exact["out"].dtype == np.float64
    assert np.array_equal(exact["out"], X.astype(np.float64) / 3)


@pytest.mark.parametrize("body", ["x += y", "return x + y", "return (x + y,)", "x[:] = x + y"])
def test_an_argument_written_in_place_by_mutation_or_by_return(load: Load, body: str) -> None:
    before = X.copy()
    working, exact = asked(load, task(WRITTEN), f"def reference(x, y):\n    {body}\n", x=before, y=X)
    assert list(working) == ["x"]
    assert np.array_equal(working["x"], 2 * X)
    assert np.array_equal(exact["x"], 2.0 * X)
    assert np.array_equal(before, X)


@pytest.mark.parametrize("body", ["x += y\n    return x * 2", "return x + y, 2 * (x + y)", "return [x + y, 2 * (x + y)]"])
def test_an_argument_in_place_and_an_output(load: Load, body: str) -> None:
    working, _ = asked(load, task(BOTH), f"def reference(x, y):\n    {body}\n", x=X, y=X)
    assert list(working) == ["x", "out"]
    assert np.array_equal(working["x"], 2 * X)
    assert np.array_equal(working["out"], 4 * X)


def test_several_outputs_and_integers(load: Load) -> None:
    made = task("f(Tensor x) -> (Tensor values, Tensor places)")
    text = "def reference(x):\n    return x.max(axis=1), x.argmax(axis=1).astype(np.int32)\n"
    working, exact = asked(load, made, text, x=X)
    assert list(working) == ["values", "places"]
    assert working["places"].dtype == exact["places"].dtype == np.int32
    assert exact["values"].dtype == np.float64


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return None", "returned 0 arrays"),
        ("return x, x", "returned 2 arrays"),
        ("return x.astype(np.float32)", "was given float64 and returned float32 for `out`"),
        ("return x.astype(np.longdouble)", "was given float64 and returned longdouble for `out`"),
    ],
)
def test_what_reference_may_not_return(load: Load, body: str, what: str) -> None:
    with pytest.raises(TaskError) as error:
        asked(load, task(), f"def reference(x):\n    {body}\n", x=X)
    assert what.replace("longdouble", str(np.dtype(np.longdouble))) in error.value.what
    assert error.value.where == "reference.py"
    assert error.value.next_step


def test_a_result_of_another_type_than_declared(load: Load) -> None:
    made = task(arguments=(Argument("out", dtype="float16"),))
    with pytest.raises(TaskError, match=r"returned float32 for `out`, \[arguments\] says float16"):
        asked(load, made, "def reference(x):\n    return x\n", x=X)


def test_a_reference_cannot_change_what_the_kernel_gets(load: Load) -> None:
    values = X.copy()
    asked(load, task(), "def reference(x):\n    x[:] = 0\n    return x + 1\n", x=values)
    assert np.array_equal(values, X)


# --------------------------------------------------------------------------------------------- what else a task may define


def test_a_limit_of_the_tasks_own(load: Load) -> None:
    module = load("def limit(case, inputs):\n    return {'bytes': 4 * inputs['x'].size, 'flops': case.m}\n")
    assert oracle.own_limit(module, CASE, {"x": X}) == (24.0, 3.0)
    assert oracle.own_limit(load(""), CASE, {"x": X}) == (0.0, 0.0)


def test_an_exception_is_one_sentence_with_its_place(load: Load) -> None:
    module = load("\ndef reference(x):\n    return x * (1 // 0)\n")
    folder = Path(str(module.__file__)).parent
    with pytest.raises(ZeroDivisionError) as error:
        module.reference(X)
    assert oracle.said(error.value, str(folder)).startswith("reference.py:4: ZeroDivisionError")


def test_an_exception_in_a_file_beside_the_reference_names_that_file(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "keepfast_beside", raising=False)
    module = load("def reference(x):\n    from keepfast_beside import broken\n    return broken(x)\n")
    folder = Path(str(module.__file__)).parent
    (folder / "keepfast_beside.py").write_text("def broken(x):\n    raise ValueError('no such row')\n")
    with pytest.raises(ValueError, match="no such row") as error:
        module.reference(X)
    assert oracle.said(error.value, str(folder)).startswith("keepfast_beside.py:2: ValueError: no such row\n")


def test_an_error_for_people_is_said_as_it_is() -> None:
    assert oracle.said(TaskError("is wrong", where="reference.py, case a"), "/x") == "reference.py, case a: is wrong"


def test_a_request_survives_the_wire() -> None:
    import msgspec

    request = Request(softmax_task(), (), "x.so")
    assert msgspec.convert(msgspec.to_builtins(request), Request) == request
