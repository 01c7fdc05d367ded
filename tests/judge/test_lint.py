"""The task lint: tasks that cannot be judged are refused, and every wrong answer is caught on the example tasks."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import numpy as np
import pytest

from keepfast.errors import TaskError
from keepfast.judge import lint, mutants, sets
from keepfast.judge.contents import Library
from keepfast.judge.lint import Linter, Report
from keepfast.judge.reference import Reference
from keepfast.judge.sets import Draw
from keepfast.model import Case, Task
from keepfast.task.load import load
from keepfast.task.signature import parse
from tests.judge import tasks
from tests.judge.tasks import softmax_task

EXAMPLES = Path(__file__).parents[2] / "examples" / "cpu"
MATRIX = '[[case]]\nname = "main"\nn = 48\n\n[[case]]\nname = "odd"\nn = 13\nuse = "correct"\n'


def linted(task: Task, library: Library) -> Report:
    return Linter(Reference(task), library, Random(1)).run()


def refused(task: Task, library: Library) -> TaskError:
    with pytest.raises(TaskError) as error:
        linted(task, library)
    assert error.value.where
    assert error.value.next_step
    return error.value


def square(folder: Path, body: str, *, draw: str = "rng.standard_normal(case.n, dtype=np.float32)", **more: str) -> Task:
    text = tasks.REFERENCE.replace("return x * x + 1", body).replace("rng.standard_normal(case.n, dtype=np.float32)", draw)
    return tasks.write(folder, reference=text, **more)


# --------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return x / 0 * 0", "reference() returned NaN or infinity in `out`"),
        ("return np.where(x > 2.5, np.inf, x)", "reference() returned NaN or infinity in `out`"),
        ("return np.ones_like(x)", "reference() returned the same value for two different inputs"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_reference_that_cannot_be_judged(tmp_path: Path, library: Library, body: str, what: str) -> None:
    error = refused(square(tmp_path, body), library)
    assert error.what.startswith(what)
    assert error.where == "reference.py, case main"


def test_an_input_that_is_ignored(tmp_path: Path, library: Library) -> None:
    text = tasks.REFERENCE.replace('{"x": rng', '{"y": np.ones(case.n) * rng.uniform(), "x": rng').replace(
        "reference(x)", "reference(x, y)"
    )
    error = refused(tasks.write(tmp_path, text=tasks.toml("f(Tensor x, Tensor y) -> Tensor"), reference=text), library)
    assert error.what == "reference() ignores its input `y`"


def test_a_frozen_kernel_is_called_by_its_name(tmp_path: Path, library: Library) -> None:
    assert Linter(Reference(tasks.write(tmp_path)), library, Random(1)).oracle == "reference()"
    text = tasks.toml().replace("schema = 1\n", 'schema = 1\noracle = "frozen"\n')
    (tmp_path / "frozen" / "kernel").mkdir(parents=True)
    (tmp_path / "frozen" / "kernel" / "kernel.c").write_text(tasks.RIGHT)
    inputs = tasks.REFERENCE.replace("def reference(x)", "def outputs(case)")
    assert Linter(Reference(tasks.write(tmp_path, text=text, reference=inputs)), library, Random(1)).oracle == "the frozen kernel"


def test_a_written_argument_of_another_shape(tmp_path: Path, library: Library) -> None:
    task = square(tmp_path, "return x[:-1]", text=tasks.toml("f(Tensor(a!) x) -> Tensor(a!)"))
    assert refused(task, library).what == "`x` is float32[4096], reference() returned float32[4095]"


UNMIXED = {"body": "return x - x.mean(dtype=x.dtype)", "draw": "rng.standard_normal(case.n) + rng.normal() * 1000"}


def test_contents_whose_size_changes_when_two_draws_are_mixed(tmp_path: Path, library: Library) -> None:
    error = refused(square(tmp_path, **UNMIXED), library)
    assert "times when two draws are mixed per element" in error.what
    assert 'refresh = "whole"' in error.next_step


def test_whole_contents_are_not_mixed(tmp_path: Path, library: Library) -> None:
    whole = tasks.toml(extra='[arguments]\nx = { refresh = "whole" }\n' + tasks.GOAL)
    assert linted(square(tmp_path, text=whole, **UNMIXED), library).survivors == ()


def test_a_case_with_one_answer_only_is_fine_when_it_is_not_timed(tmp_path: Path, library: Library) -> None:
    one = '\n[[case]]\nname = "one"\nn = 1\nuse = "correct"\n'
    task = square(
        tmp_path,
        "return x / np.abs(x).max() if case_of(x) else x * 0\n\n\ndef case_of(x):\n    return x.size > 1",
        text=tasks.toml(cases=tasks.CASES + one),
    )
    assert linted(task, library).cases == 3


# --------------------------------------------------------------------------------------------- mutants


@pytest.mark.parametrize("scale", [900, 1000])
def test_a_tolerance_that_lets_a_wrong_answer_pass(tmp_path: Path, library: Library, scale: int) -> None:
    error = refused(square(tmp_path, "return x * x + 1", text=tasks.toml(extra=f"[tolerance]\nscale = {scale}\n{tasks.GOAL}")), library)
    assert error.what.startswith("a wrong answer would pass: ")
    assert "half precision" in error.what
    assert error.where == f"task {tmp_path.name}"
    named = re.search(r"\[tolerance\] scale = (\S+) would kill it in case", error.next_step)
    assert named
    assert 1 < float(named[1]) < scale


def test_a_compare_that_forgives_everything(tmp_path: Path, library: Library) -> None:
    task = square(
        tmp_path, "return x * x + 1\n\n\ndef compare(case, inputs, got, expected):\n    return None", text=tasks.toml(cases=SMALL)
    )
    error = refused(task, library)
    assert "zeros, constant, stale output" in error.what


SMALL = '[[case]]\nname = "main"\nn = 16\n'


def mutants_of(task: Task, library: Library) -> dict[str, str]:
    return {m.name: m.killed_by for m in linted(task, library).mutants}


MASKED = """import numpy as np


def inputs(case, rng):
    return {"x": rng.standard_normal(case.n, dtype=np.float32), "mask": rng.random(case.n) < 0.5}


def reference(x, mask):
    return np.cumsum(np.where(mask, x, 0), dtype=x.dtype)
"""


def test_inputs_are_misread(tmp_path: Path, library: Library) -> None:
    text = tasks.toml("f(Tensor x, Tensor mask) -> Tensor")
    found = mutants_of(tasks.write(tmp_path, text=text, reference=MASKED), library)
    assert found["wrong mask mask"]
    assert found["tail of x unread"]
    assert found["computed in half precision"]


def test_a_reference_that_cannot_take_a_misread_input_takes_the_others(tmp_path: Path, library: Library) -> None:
    text = tasks.REFERENCE.replace("return x * x + 1", "assert x[-1]\n    return x * x + 1")
    found = mutants_of(tasks.write(tmp_path, reference=text), library)
    assert found["computed in half precision"]
    assert "tail of x unread" not in found


# --------------------------------------------------------------------------------------------- the precision floor


def floored(folder: Path, floor: str, scale: float = 1.0, draw: str = "rng.standard_normal(case.n, dtype=np.float32)") -> Task:
    extra = f'[rules]\nprecision_floor = "{floor}"\n[tolerance]\nscale = {scale}\n{tasks.GOAL}'
    return square(folder, "return x * x * 0.05 + 1", text=tasks.toml(extra=extra), draw=draw)


def test_what_is_computed_below_the_floor_fails(tmp_path: Path, library: Library) -> None:
    assert mutants_of(floored(tmp_path, "fp32"), library)["computed in tf32, below the floor"]
    assert mutants_of(floored(tmp_path, "tf32"), library)["computed in bf16, below the floor"]


def test_a_tolerance_in_which_the_floor_does_not_show_refuses_the_task(tmp_path: Path, library: Library) -> None:
    error = refused(floored(tmp_path, "fp32", scale=1000), library)
    assert "computed in tf32, below the floor" in error.what
    assert "[tolerance] scale = " in error.next_step


def test_inputs_in_which_the_floor_cannot_show_refuse_the_task(tmp_path: Path, library: Library) -> None:
    whole = "rng.integers(-9, 9, case.n).astype(np.float32)"
    error = refused(floored(tmp_path, "fp32", draw=whole), library)
    assert error.what.startswith('`precision_floor = "fp32"` cannot be told here')


@pytest.mark.parametrize(("bits", "eps"), [(24, 2.0**-24), (11, 2.0**-11), (8, 2.0**-8), (4, 2.0**-4)])
def test_shortened_is_off_by_half_a_unit_at_most(bits: int, eps: float) -> None:
    x = np.random.default_rng(1).standard_normal(10_000)
    off = np.abs(mutants.shortened(x, bits) / x - 1)
    assert eps / 2 < off.max() <= eps
    assert np.array_equal(mutants.shortened(mutants.shortened(x, bits), bits), mutants.shortened(x, bits))


@pytest.mark.parametrize(
    ("body", "signature", "draw"),
    [
        ("return np.sign(x)", tasks.SIGNATURE, "rng.standard_normal(case.n, dtype=np.float32)"),  # is the same in half precision
        ("return x @ x.T", "gram(Tensor x) -> Tensor", "rng.standard_normal((case.n, case.n))"),  # is its own transpose
        ("return np.rint(x * 9).astype(np.int8)", "quantise(Tensor x) -> Tensor", "rng.standard_normal(case.n)"),
        ("return x * 1e6", "scale(Tensor x) -> Tensor", "rng.standard_normal(case.n)"),  # is out of range in half precision
    ],
)
def test_a_change_that_changes_nothing_is_no_mutant(tmp_path: Path, library: Library, body: str, signature: str, draw: str) -> None:
    task = square(tmp_path, body, draw=draw, text=tasks.toml(signature, cases=MATRIX))
    found = linted(task, library)
    assert found.survivors == ()
    assert "zeros" in [m.name for m in found.mutants]


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "matmul"])
def test_every_mutant_dies_on_the_example_tasks(library: Library, name: str) -> None:
    found = linted(load(EXAMPLES / name), library)
    assert found.survivors == ()
    assert len(found.mutants) >= 10
    assert all(m.killed_by for m in found.mutants)
    assert found.score == f"{len(found.mutants)} of {len(found.mutants)} mutants killed in {found.cases} cases"


def names(signature: str, *results: np.ndarray) -> list[str]:
    """Mutants of a task whose results are these, all of them also its inputs."""
    task = softmax_task(signature=parse(signature))
    values = {a.name: r * 3 for a, r in zip(task.signature.args, results, strict=False)}
    outputs = {r.name: results[-1 - i] for i, r in enumerate(reversed(task.signature.outputs))}
    case = Case("c", ())
    layout, words = sets.plan(task.signature, case, values, outputs)
    images = sets.images(task.signature, layout, values)
    one = Draw(case, layout, words, *images, results, results)
    other = Draw(case, layout, words, *images, tuple(r + 1 for r in results), results)
    return [name for name, _ in lint.mutants(task, one, other)]


X = np.arange(1, 13, dtype=np.float32).reshape(3, 4) / 7


def test_mutants_fit_the_shape_of_the_result() -> None:
    found = names("f(Tensor x) -> Tensor", X)
    common = ["zeros", "constant", "stale output", "first row only", "last row missing", "last column missing", "last tile missing"]
    assert found == [*common, "shifted by one", "transposed", "half precision", "off by one in a thousand", "identity of x"]
    assert "transposed" not in names("f(Tensor x) -> Tensor", X[:1])
    assert "one head missing" in names("f(Tensor x) -> Tensor", X.reshape(3, 2, 2))
    assert "one head missing" not in found
    scalar = names("f(Tensor x) -> Tensor", np.array(0.3, np.float32))
    assert scalar == ["zeros", "stale output", "half precision", "off by one in a thousand", "identity of x"]
    integers = names("f(Tensor x) -> Tensor", np.arange(1, 5, dtype=np.int32))
    assert "half precision" not in integers
    assert "off by one in a thousand" not in integers


def test_several_results_are_mutated_one_at_a_time_and_swapped() -> None:
    found = names("f(Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor(b!))", X, X + 2)
    assert "untouched (x)" in found
    assert "untouched (y)" in found
    assert "identity of y (x)" in found
    assert found[-1] == "swapped outputs"
    assert names("f(Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor(b!))", X, X)[-1] != "swapped outputs"
