"""Commands whose work is done elsewhere: the words become a record, the exit code comes back, errors are one message."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import keepfast as package
from keepfast import exits
from keepfast.errors import MachineError, TaskError
from keepfast.model import Kind
from keepfast.options import RunOptions, settings
from tests.cli.conftest import Call
from tests.report import samples


class Story:
    """Stands in for keepfast.run: remembers what it was called with."""

    def __init__(self, answer: int | Exception) -> None:
        self.answer, self.calls = answer, []

    def __getattr__(self, name: str) -> Any:
        def call(*args: object) -> int:
            self.calls.append((name, *args))
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return call

    calls: list[tuple[object, ...]]


def told(monkeypatch: pytest.MonkeyPatch, answer: int | Exception) -> Story:
    story = Story(answer)
    monkeypatch.setitem(sys.modules, "keepfast.run", story)
    monkeypatch.setattr(package, "run", story, raising=False)
    return story


def test_run(keepfast: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    story = told(monkeypatch, 7)
    words = "run tasks/a --proposer search --resume --detach --experiments 5 --hours 1.5 --dry 3 --goal 2 --seed 9 --walls partial"
    assert keepfast(*words.split(), "--trust-candidate", "--sampler", "random", "--json").code == 7
    options = RunOptions(("search",), True, True, 5, 1.5, 3, 2.0, 9, "partial", True, "random", True)
    assert story.calls == [("start", Path("tasks/a"), options)]


def test_run_defaults(keepfast: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    story = told(monkeypatch, 0)
    assert keepfast("run").code == 0
    assert story.calls == [("start", Path(), RunOptions())]


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("check tasks/a --json", ("check", Path("tasks/a"), RunOptions(json=True))),
        (
            "calibrate tasks/a --walls none --trust-candidate",
            ("calibrate", Path("tasks/a"), RunOptions(walls="none", trust_candidate=True)),
        ),
        ("demo --folder /tmp/x", ("demo", Path("/tmp/x"), False)),
        ("demo", ("demo", None, False)),
    ],
)
def test_the_others(keepfast: Call, monkeypatch: pytest.MonkeyPatch, words: str, call: tuple[object, ...]) -> None:
    story = told(monkeypatch, 3)
    assert keepfast(*words.split()).code == 3
    assert story.calls == [call]


@pytest.mark.parametrize(
    "words", ["run --walls wall", "check --walls wall", "run --sampler tpr", "run --experiments 0", "run --experiments x", "run --nope"]
)
def test_wrong_words_are_usage_errors(keepfast: Call, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    story = told(monkeypatch, 0)
    said = keepfast(*words.split())
    assert said.code == 2
    assert said.err
    assert story.calls == []
    if "wall" in words:
        assert "Did you mean `walls`?" in said.err


@pytest.mark.parametrize(
    ("error", "code"), [(TaskError("bad \x1b[31m", where="task.toml:3", next_step="mend it"), 2), (MachineError("busy"), 5)]
)
def test_an_error_for_people_is_one_message(keepfast: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    told(monkeypatch, error)
    said = keepfast("check")
    assert said.code == code
    assert said.out == ""
    assert "Traceback" not in said.err
    assert "\x1b" not in said.err
    if code == 2:
        assert said.err == "task.toml:3: bad \\x1b[31m\n  mend it\n"


def test_ctrl_c_is_130(keepfast: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "run", SimpleNamespace(check=_interrupt), raising=False)
    monkeypatch.setitem(sys.modules, "keepfast.run", package.run)  # type: ignore[attr-defined]
    assert keepfast("check").code == 130


def _interrupt(*_: object) -> int:
    raise KeyboardInterrupt


def test_exit_codes_are_those_of_the_documents() -> None:
    assert {k: exits.of_kind(k) for k in Kind} == {Kind.KEEP: 0, Kind.REJECT: 3, Kind.SUSPECT: 4, Kind.VOID: 5, Kind.REVERT: 6}
    states = ("goal", "stopped", "deck-done", "budget", "interrupted")
    assert [exits.of_state(s, goal=True) for s in states] == [0, 0, 7, 7, 130]
    assert [exits.of_state(s, goal=False) for s in states] == [0, 0, 0, 0, 130]


def test_settings_of_a_run_can_be_read_back() -> None:
    from keepfast.report.book import goal_of

    run = samples.run(settings=settings(RunOptions(), samples.task()))
    assert dict(run.settings) == {
        "proposer": "deck,search",
        "sampler": "tpe",
        "walls": "auto",
        "goal": "2.2",
        "over": "start",
        "experiments": "40",
    }
    assert goal_of(run) == samples.task().goal


def test_schema(keepfast: Call) -> None:
    import json

    assert json.loads(keepfast("schema").out)["title"] == "keepfast task.toml"


def test_doctor_says_what_this_machine_can_do(keepfast: Call) -> None:
    import json

    said = keepfast("doctor", "--json")
    assert said.code in (0, 5)
    assert json.loads(said.out)["schema"] == "keepfast.doctor/1"
