"""The reference worker as the judge asks it: draws, results, compare(), limits, a frozen oracle, and how it fails."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from keepfast.errors import TaskError
from keepfast.judge.arms import Arms
from keepfast.judge.oracle_records import Job
from keepfast.judge.reference import AT_ONCE, Reference
from keepfast.judge.sets import Draw, view
from keepfast.model import Task
from keepfast.walls.base import Walls
from tests.judge import tasks

IN_PLACE = "mixed(Tensor(a!) x, Tensor? bias, Tensor rows, float eps, int? k, str mode, bool fast=True) -> Tensor"
MIXED = """import numpy as np


def inputs(case, rng):
    whole = rng.standard_normal((case.n, 6))
    return {
        "x": whole[:, ::2], "bias": None, "rows": rng.integers(0, 9, case.n, dtype=np.int32)[::-1],
        "eps": 0.5, "k": 3, "mode": "zwölf", "fast": False,
    }


def reference(x, bias, rows, eps, k, mode, fast):
    assert (bias, eps, k, mode, fast) == (None, 0.5, 3, "zwölf", False)
    x *= 2
    return (x.sum(axis=1) + rows + eps * k).astype(x.dtype)


def limit(case, inputs):
    return {"bytes": float(inputs["rows"].sum())}
"""


def jobs(task: Task, count: int = 2) -> list[Job]:
    return [Job("make", case, (7, i)) for case in task.cases for i in range(count)]


def reading(draw: Draw, name: str) -> np.ndarray:
    slot = draw.layout.slot(name)
    return view(draw.in_image if slot.region == "in" else draw.out_image, slot)


def test_a_draw_holds_what_inputs_drew_and_its_results_can_be_asked_for_again(tmp_path: Path) -> None:
    task = tasks.write(tmp_path, text=tasks.toml(IN_PLACE), reference=MIXED)
    reference = Reference(task)
    draws = reference.draws(jobs(task))
    assert [d.case.name for d in draws] == ["main", "main", "odd", "odd"]
    x, rows = (reading(draws[0], name) for name in ("x", "rows"))
    assert x.strides == (48, 16)
    assert rows.strides == (-4,)
    assert np.array_equal(draws[0].working[0], 2 * x)
    assert np.array_equal(draws[0].working[1], 2 * x.sum(axis=1) + rows + 1.5)
    assert draws[0].limit == (float(rows.sum()), 0.0)
    assert [w.kind for w in draws[0].words] == ["out", "null", "in", "raw", "in", "in", "raw", "out", "raw", "null"]
    assert not np.array_equal(x, reading(draws[1], "x"))
    for draw, again in zip(draws, reference.results(draws), strict=True):
        for one, other in zip((*draw.working, *draw.exact), (*again.working, *again.exact), strict=True):
            assert np.array_equal(one, other)
            assert one.dtype == other.dtype


def test_more_draws_than_one_message_can_carry(tmp_path: Path) -> None:
    task = tasks.write(tmp_path)
    (one,) = Reference(task).draws([Job("make", task.cases[1], (1,))])
    found = Reference(task).results([one] * (AT_ONCE + 3))
    assert len(found) == AT_ONCE + 3
    assert all(np.array_equal(r.exact[0], one.exact[0]) for r in found)


def test_draws_without_results_have_their_layout(tmp_path: Path) -> None:
    task = tasks.write(tmp_path)
    (draw,) = Reference(task).draws([Job("make", task.cases[1], (1,), oracle=False)])
    assert draw.working == draw.exact == ()
    assert {s.name: s.dtype for s in draw.layout.slots} == {"x": "float32", "out": "float32"}


def test_draws_of_a_case_must_lie_alike(tmp_path: Path) -> None:
    text = tasks.REFERENCE.replace("standard_normal(case.n,", "standard_normal(case.n + rng.integers(1, 10**6),")
    task = tasks.write(tmp_path, reference=text)
    with pytest.raises(TaskError, match="two draws of one case different shapes") as error:
        Reference(task).draws(jobs(task))
    assert error.value.where == "reference.py, case main"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return x * x + 1", "raise IndexError('row 9')", "reference.py:9: IndexError: row 9"),
        ("import numpy as np", "import numpie", "reference.py:1: ModuleNotFoundError: No module named 'numpie'"),
        ("return x * x + 1", "raise SystemExit(3)", "reference.py: the reference worker gave no answer"),
        ("return x * x + 1", "import os; os.abort()", "reference.py: the reference worker gave no answer (it was killed by SIGABRT)"),
    ],
)
def test_how_a_reference_fails(tmp_path: Path, old: str, new: str, said: str) -> None:
    task = tasks.write(tmp_path, reference=tasks.REFERENCE.replace(old, new))
    with pytest.raises(TaskError) as error:
        Reference(task).draws(jobs(task))
    assert error.value.text().startswith(said)


def test_what_a_reference_prints_is_no_output_of_ours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    task = tasks.write(tmp_path, reference=tasks.REFERENCE.replace("return x * x", "print('hello')\n    return x * x"))
    Reference(task).draws(jobs(task, 1))
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "hello" in shown.err


COMPARE = tasks.REFERENCE + "\n\ndef compare(case, inputs, got, expected):\n    assert inputs['x'].shape == got['out'].shape\n    BODY\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", ""),
        ("return np.all(np.abs(got['out'] - expected['out']) < 1e9)", ""),
        ("return np.bool_(False)", "compare() said no"),
        ("return False", "compare() said no"),
        ('return f\'{case.name}: off by {got["out"][0] - expected["out"][0]:.0f}\'', "odd: off by 2"),
    ],
)
def test_a_tasks_own_compare(tmp_path: Path, body: str, said: str) -> None:
    task = tasks.write(tmp_path, reference=COMPARE.replace("BODY", body))
    reference = Reference(task)
    assert reference.has_compare
    (draw,) = reference.draws([Job("make", task.cases[1], (1,))])
    got = draw.out_image.copy()
    view(got, draw.layout.slot("out"))[...] = draw.working[0] + 2
    assert reference.compare(draw, got) == said


def test_without_compare_there_is_none(tmp_path: Path) -> None:
    assert not Reference(tasks.write(tmp_path)).has_compare


def test_a_frozen_kernel_is_the_oracle(tmp_path: Path, walls: Walls, reachable: Path) -> None:
    reference = frozen(tmp_path, walls, reachable, "+ 1.0f", "+ 3.0f")
    (draw,) = reference.draws([Job("make", reference.task.cases[0], (1,))])
    x = reading(draw, "x")
    assert np.array_equal(draw.working[0], x * x + np.float32(3))
    assert draw.exact[0].dtype == np.float64
    assert np.array_equal(draw.exact[0], draw.working[0])
    (again,) = reference.results([draw])
    assert np.array_equal(again.working[0], draw.working[0])


def frozen(folder: Path, walls: Walls, builds: Path, old: str, new: str) -> Reference:
    """The reference of a task whose oracle is the softmax kernel with a change."""
    text = tasks.toml().replace("schema = 1\n", 'schema = 1\noracle = "frozen"\n')
    (folder / "frozen" / "kernel").mkdir(parents=True)
    (folder / "frozen" / "kernel" / "kernel.c").write_text(tasks.RIGHT.replace(old, new))
    outputs = "def outputs(case):\n    return {'out': np.empty(case.n, np.float32)}\n"
    task = tasks.write(folder, text=text, reference=tasks.REFERENCE.partition("def reference")[0] + outputs)
    return Reference(task, Arms(task, walls, builds).frozen({"x": "float32", "out": "float32"}))


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (
            "*(volatile int *)8 = 1; return 0",
            "frozen oracle: the frozen kernel crashed (SIGSEGV)\n  inputs() must draw what it can compute",
        ),
        (
            "return 7",
            "frozen oracle, case main: the frozen kernel returned 7\n  inputs() must draw what the kernel can compute; an adapter",
        ),
    ],
)
def test_how_a_frozen_kernel_fails(tmp_path: Path, walls: Walls, reachable: Path, new: str, said: str) -> None:
    reference = frozen(tmp_path, walls, reachable, "return 0", new)
    with pytest.raises(TaskError) as error:
        reference.draws(jobs(reference.task))
    assert error.value.text().startswith(said)


def test_a_worker_that_is_not_needed_leaves_nothing(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    pending = Reference(task := tasks.write(tmp_path)).ask(jobs(task))
    pending.close()
    assert not Path(f"/proc/{pending.process.pid}").exists()
    assert len(os.listdir("/proc/self/fd")) == before
