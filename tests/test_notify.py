"""What is news, and that the command for it never holds up a run."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from keepfast.errors import UsageError
from keepfast.model import Event, Experiment, Switch, Verdict
from keepfast.notify import MOST, Notify, news
from keepfast.testing import keep, reject, revert


def judged(verdict: Verdict, n: int = 2) -> Event:
    return Event("verdict", experiment=Experiment(n, "deck", "two rows", "", None, "t", "c", 1, verdict, 0.0, 0.0), n=n)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (judged(keep(1.2)), "keep: experiment 2, two rows: "),
        (judged(revert()), ""),
        (judged(reject()), ""),
        (judged(keep(1.0), n=1), ""),
        (Event("idea", "no idea is open"), "no idea is open"),
        (Event("end", "goal met"), "goal met"),
        (Event("switch", "claude: off", switch=Switch("claude", "off", "")), "claude: off"),
        (Event("switch", "claude: asleep", switch=Switch("claude", "asleep", "")), ""),
        (Event("note", "anything"), ""),
    ],
)
def test_what_is_news(event: Event, said: str) -> None:
    assert news(event) == said


def test_the_command_gets_the_line_and_the_run_gets_the_event(tmp_path: Path) -> None:
    script, out = tmp_path / "say.py", tmp_path / "said"
    new = f"{out}.new"
    script.write_text(f"import sys, os\nwith open({new!r}, 'w') as f: f.write(sys.argv[1])\nos.rename({new!r}, {str(out)!r})\n")
    passed: list[Event] = []
    notify = Notify(f"{sys.executable} {script}", passed.append)
    notify(Event("end", "goal met\x1b[31m"))
    end = time.monotonic() + 60
    while not out.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert "goal met" in out.read_text()
    assert "\x1b" not in out.read_text()
    assert [e.text for e in passed] == ["goal met\x1b[31m"]


def test_a_command_that_hangs_is_not_waited_for_and_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over, ended = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)

    def hangs(argv: list[str], **how: object) -> None:
        begun.release()
        over.wait(60)
        ended.release()
        raise subprocess.TimeoutExpired(argv, 1)

    monkeypatch.setattr("keepfast.notify.subprocess.run", hangs)
    notify = Notify("sleep 600", lambda event: None)
    for _ in range(10):
        notify(Event("end", "x"))  # returns at once, ten times
    over.set()
    for _ in range(MOST):
        assert begun.acquire(timeout=60)
        assert ended.acquire(timeout=60)
    assert not begun.acquire(blocking=False)


@pytest.mark.parametrize("command", ["", "no-such-program-anywhere x", "'"])
def test_a_command_that_is_none(command: str) -> None:
    with pytest.raises(UsageError, match="notify"):
        Notify(command, lambda event: None)
