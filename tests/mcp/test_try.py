"""`keepfast try`: in a repository with a run, without one, in an agent's workspace, and where nobody answers."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from keepfast.ledger import Ledger
from keepfast.propose.command import workspace
from keepfast.propose.command.counter import Counter
from tests.cli.conftest import Call
from tests.mcp.kit import NAME, going, held, judge
from tests.propose.command.conftest import job


def test_without_a_run_there_is_nobody_to_ask(root: Path, keepfast: Call) -> None:
    said = keepfast("try", NAME)
    assert (said.code, said.out) == (2, "")
    assert "no run is going on that could judge" in said.err
    assert "keepfast check   judges once" in said.err


def test_it_asks_the_run_that_is_going_on(root: Path, kernel: Path, keepfast: Call) -> None:
    by = judge()
    with going(root, by) as run:
        same = keepfast("try", NAME)
        assert (same.code, "no editable file differs from those of experiment 1" in same.err) == (2, True)
        kernel.write_text(kernel.read_text() + "/* fast */\n")
        found = json.loads(keepfast("try", NAME, "--json").out)
        assert (found["run"], found["ok"], found["files"]) == (run, True, ["kernel/kernel.c"])
        assert found["words"].startswith("It is right. Against experiment 1")
        kernel.write_text("wrong \x1b[2J\n")
        wrong = keepfast("try", NAME)
        assert wrong.code == 0
        assert "out[3] is 0.0" in wrong.out
    assert [a.verb for a in by.asked if a.verb in ("try", "evaluate")] == ["try", "try"]
    with Ledger.open(root / ".keepfast", readonly=True) as ledger:
        assert len(ledger.experiments(run)) == 1, "a try is no experiment"


def test_it_does_not_wait_for_ever(root: Path, kernel: Path, keepfast: Call) -> None:
    late = threading.Event()
    with going(root, judge(held(late))):
        kernel.write_text("fast\n")
        said = keepfast("try", NAME, "--seconds", "1")
        late.set()
    assert said.code == 5
    assert "gave no answer in 1 s; it still will, and counts it" in said.err


def test_a_run_of_something_else_is_not_asked(root: Path, keepfast: Call) -> None:
    with going(root, judge()):
        (root / NAME / "reference.py").write_text((root / NAME / "reference.py").read_text() + "\n# another task now\n")
        said = keepfast("try", NAME)
    assert said.code == 2
    assert "is about another task, or this one before it was changed" in said.err


def test_a_ledger_that_is_held_by_a_check(root: Path, keepfast: Call) -> None:
    with Ledger.open(root / ".keepfast") as ledger, ledger.hold(""):
        said = keepfast("try", NAME)
    assert (said.code, "takes no questions yet" in said.err) == (2, True)


def test_in_a_workspace_it_asks_for_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keepfast: Call) -> None:
    place = tmp_path / "workspace"
    workspace.lay_out(place, job())
    (place / "kernel" / "kernel.c").write_text("new")
    monkeypatch.chdir(place / "kernel")
    with Counter(place, job(), lambda changed: f"{len(changed)} \x1b[2J files"):
        said = keepfast("try")
        assert (said.code, said.out) == (0, "1 \\x1b[2J files\n")
        assert json.loads(keepfast("try", "--json").out)["ok"] is True
        (place / "kernel" / "kernel.c").write_bytes(job().files[0].data)
        assert keepfast("try").code == 1
    assert keepfast("try").code == 2, "the socket is gone with the turn"
