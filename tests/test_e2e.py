"""One whole run through the command line, on real kernels: a change of nothing, a wrong one, one several times as fast."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call, git
from tests.cli.conftest import empty as empty
from tests.cli.conftest import keepfast as keepfast
from tests.judge import tasks

START, FASTER = tasks.looping(300), tasks.looping(3)  # so far apart that the goal is met on a busy machine too
NAME = "tasks/schnell größer"


@pytest.fixture
def repository(empty: Path) -> Path:
    """A repository, which is the working folder, with a task whose deck has three entries."""
    folder = empty / NAME
    tasks.write(folder, code=START)
    for name, code in (
        ("001-nothing", f"/* as it was */\n{START}"),
        ("002-wrong", START.replace("+ 1.0f", "+ 2.0f")),
        ("003-faster", FASTER),
    ):
        path = folder / "deck" / name / "kernel" / "kernel.c"
        path.parent.mkdir(parents=True)
        path.write_text(code)
    git(empty, "add", "-A")
    git(empty, "commit", "-qm", "a task")
    return empty


def noisy(log: list[dict[str, Any]]) -> str:
    """Why this machine cannot show even a large gain now, or ""."""
    kind, reason = log[-1]["kind"], log[-1]["reason"]
    return f"{kind}, {reason}: {log[-1]['detail']}" if reason in ("machine", "ambiguous", "not-confirmed", "case-loss") else ""


@pytest.mark.usefixtures("calm", "walled")
def test_a_whole_run(repository: Path, keepfast: Call) -> None:
    head = git(repository, "rev-parse", "HEAD")
    ran = keepfast("run", NAME, "--proposer", "deck", "--experiments", "4", "--seed", "3")
    if ran.code == 5:
        pytest.skip(f"this machine is too busy to judge: {ran.err}")
    log = json.loads(keepfast("log", "--json").out)["experiments"]
    if why := noisy(log):
        pytest.skip(f"this machine is too noisy to judge: {why}")
    assert [(e["kind"], e["reason"]) for e in log] == [
        ("keep", "start"),
        ("revert", "same-code"),
        ("reject", "wrong"),
        ("keep", "faster"),
    ]
    assert ran.code == 0, ran.err
    assert "goal met" in ran.out
    _read(keepfast)
    _ship(repository, keepfast, head)
    _again(keepfast)


def _read(keepfast: Call) -> None:
    assert "goal" in keepfast("status").out
    assert len(keepfast("log").out.splitlines()) >= 5
    shown = keepfast("show", "4")
    assert shown.code == 0
    assert "confirm" in shown.out
    assert "k < 3;" in keepfast("show", "4", "--diff").out
    assert "case main: out[" in keepfast("show", "3").out
    report = json.loads(keepfast("report", "--json").out)
    assert report["champion"] == 4
    assert report["total"]["direct"] is True
    page = Path(report["html"]).read_text()
    assert "faster" in page
    assert "<script" not in page


def _ship(repository: Path, keepfast: Call, head: str) -> None:
    finished = keepfast("finalize", "--branch", "faster kernel".replace(" ", "-"))
    assert finished.code == 0, finished.err
    assert git(repository, "log", "--format=%an", f"{head}..faster-kernel") == "Test"
    assert "k < 3;" in git(repository, "show", f"faster-kernel:{NAME}/kernel/kernel.c")
    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "status", "--porcelain") == ""
    assert keepfast("gc", "--candidates", "0").code == 0
    subprocess.run(("git", "fsck", "--strict"), cwd=repository, check=True, capture_output=True)


def _again(keepfast: Call) -> None:
    resumed = keepfast("run", NAME, "--proposer", "deck", "--resume")
    assert resumed.code == 0, resumed.err
    assert len(json.loads(keepfast("log", "--json").out)["experiments"]) == 4
    by_hand = keepfast("check", NAME)
    assert by_hand.code in (5, 6), by_hand.out
    assert "against  experiment 4" in by_hand.out
