"""`[dispatch]` in task.toml: every mistake is named with its line and what to type, and the table is no part of the task's hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.dispatch import space
from keepfast.errors import TaskError
from keepfast.model.task import Dispatch
from keepfast.task.load import load
from tests.dispatch import kit


def test_without_the_table_cases_say_it(tmp_path: Path) -> None:
    task = kit.c_softmax(tmp_path)
    assert task.dispatch == Dispatch()
    where = space.made(task, {"m", "n"})
    assert where.visible == (("m", (16,)), ("n", (256,)))
    assert space.made(task, {"m"}).hidden == (("n", (256,)),)
    assert space.fallbacks(task, task.dispatch) == ("numpy",)


def test_the_table(tmp_path: Path) -> None:
    extra = '[dispatch]\nvisible = ["m"]\nhidden = ["n"]\ngrid = { m = [1, 64, 16], n = [256, 32] }\nfallbacks = ["numpy"]\nrounds = 4\n'
    task = kit.c_softmax(tmp_path, extra)
    assert task.dispatch == Dispatch(("m",), ("n",), (("m", (1, 64, 16)), ("n", (256, 32))), ("numpy",), 4)
    where = space.made(task, {"m", "n"})
    assert (where.visible, where.hidden) == ((("m", (1, 16, 64)),), (("n", (32, 256)),))
    assert task.hash == kit.c_softmax(tmp_path / "other").hash


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ('visible = ["mm"]', r"no axis is called `mm`. Did you mean `m`\?"),
        ('hidden = ["x"]', "no axis is called `x`"),
        ('visible = ["m"]\nhidden = ["m"]', "both visible and hidden"),
        ('visible = ["m", "m"]', "names one axis twice"),
        ('visible = ["m"]\ngrid = { m = [16], n = [256] }', "`n` is neither visible nor hidden"),
        ("grid = { q = [1] }", "no axis is called `q`"),
        ("grid = { m = [1, 2] }", "leaves out 16, the task's longest case"),
        ("grid = { m = [] }", "whole numbers from 1"),
        ("grid = { m = [0, 16] }", "whole numbers from 1"),
        ('grid = { m = "n +" }', "`m`: "),
        ('grid = { m = "q * 2" }', "`m`: "),
        ('fallbacks = ["nunpy"]', r"no baseline is called `nunpy`. Did you mean `numpy`\?"),
        ("rounds = 2", "`rounds` must be from 3"),
        ("round = 6", r"unknown key `round` in \[dispatch\]. Did you mean `rounds`\?"),
    ],
)
def test_mistakes(tmp_path: Path, extra: str, said: str) -> None:
    with pytest.raises(TaskError, match=said) as error:
        kit.c_softmax(tmp_path, f"[dispatch]\n{extra}\n")
    assert error.value.where.startswith("task.toml:")


def test_a_visible_axis_that_no_argument_tells(tmp_path: Path) -> None:
    task = kit.c_softmax(tmp_path, '[dispatch]\nvisible = ["m", "n"]\n')
    with pytest.raises(TaskError, match="no argument tells `n`"):
        space.made(task, {"m"})


def test_too_many_points(tmp_path: Path) -> None:
    values = [*range(1, 40), 256]
    task = kit.c_softmax(tmp_path, f"[dispatch]\ngrid = {{ m = {[*range(1, 20)]}, n = {values} }}\n")
    with pytest.raises(TaskError, match="760 points"):
        space.made(task, {"m", "n"})


def test_the_examples_still_load() -> None:
    for folder in sorted((Path(__file__).parents[2] / "examples").glob("*/*/task.toml")):
        assert load(folder.parent).dispatch.rounds == 6


def test_the_operators_own_baseline_is_stock(tmp_path: Path) -> None:
    task = kit.op_softmax(tmp_path)
    (Path(task.folder) / "baselines" / "a_first.py").write_text("def kernel(x):\n    return x\n")
    assert space.fallbacks(load(Path(task.folder)), Dispatch()) == ("op", "a_first")
