"""Finished items are found again by the same machine and task, also after a script was killed in the middle of a line."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from msgspec import Struct

from tests.benchmarks.scripts import script


class Item(Struct, frozen=True):
    n: int


@pytest.fixture(scope="module")
def workbench() -> ModuleType:
    return script("workbench")


def test_what_is_finished_is_not_done_again(workbench: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "results" / "items.jsonl"
    workbench.Store(path, "m", "t").add("a", Item(1))
    again = workbench.Store(path, "m", "t")
    assert again.find("a", Item) == Item(1)
    assert again.once("a", Item, lambda: pytest.fail("it was finished")) == Item(1)
    assert again.once("b", Item, lambda: Item(2)) == Item(2)
    assert workbench.Store(path, "m", "t").find("b", Item) == Item(2)


def test_another_machine_or_task_begins_anew(workbench: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    workbench.Store(path, "m", "t").add("a", Item(1))
    assert workbench.Store(path, "other", "t").find("a", Item) is None
    assert workbench.Store(path, "m", "other").find("a", Item) is None
    assert workbench.Store(path, "m", "t").find("a", Item) == Item(1)


def test_fresh_forgets(workbench: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    workbench.Store(path, "m", "t").add("a", Item(1))
    assert workbench.Store(path, "m", "t", fresh=True).find("a", Item) is None


def test_a_line_cut_off_by_a_kill(workbench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "items.jsonl"
    store = workbench.Store(path, "m", "t")
    store.add("a", Item(1))
    store.add("b", Item(2))
    path.write_bytes(path.read_bytes()[:-9])
    store = workbench.Store(path, "m", "t")
    assert (store.find("a", Item), store.find("b", Item)) == (Item(1), None)
    assert "is left out" in capsys.readouterr().err
    store.add("b", Item(3))
    assert workbench.Store(path, "m", "t").find("b", Item) == Item(3)


def test_bars_decide_the_exit_code(workbench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    held, missed = workbench.Bar("a", "1", "1", True), workbench.Bar("b", "at most 1", "2", False)
    assert workbench.settled([held]) == 0
    assert workbench.settled([held, missed]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_the_task_is_one_that_keepfast_reads(workbench: ModuleType, tmp_path: Path) -> None:
    task = workbench.make_task(tmp_path / "softmax", "int kernel(void);\n", rows=24, columns=64)
    assert [c.name for c in task.timed] == ["timed"]
    assert task.build.flags == ("-O2",)


def test_a_command_line_has_no_paths_of_this_machine(workbench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["/elsewhere/bin/aa.py", "--out", str(workbench.ROOT / "benchmarks/results/gpu"), "--work", "/elsewhere/out", "--only", "a b"]
    monkeypatch.setattr(workbench.sys, "argv", words)
    assert workbench.command("benchmarks/gpu") == "python benchmarks/gpu/aa.py --out benchmarks/results/gpu --work out --only 'a b'"
