"""The oracle as the judge asks it: answers, errors in the human's files, silence, and a new start after a death."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keepfast import wire
from keepfast.errors import TaskError
from keepfast.judge.gpu import asking
from keepfast.judge.gpu.asking import Oracle
from tests.judge import tasks

from . import fakes

TASK = tasks.softmax_task(languages=("triton",))


@contextmanager
def oracle(folder: Path, body: str, audit: str = "host") -> Iterator[Oracle]:
    with Oracle(TASK, argv=fakes.program(folder, fakes.ORACLE, body), audit=audit) as made:
        yield made


def test_every_question_has_its_answer(tmp_path: Path) -> None:
    body = """
def on(question, fds):
    if isinstance(question, messages.Describe):
        assert task.name == "softmax" and question.cases == ("main",)
        say(Described(limits=((1.0, 2.0),), has_compare=True))
    if isinstance(question, messages.Fill):
        assert (question.seeds, question.kind) == (((1, 2, 3, 4), (5, 6, 7, 8)), "host")
        say(Filled(Bank("host", 2, 512, 1024)), (wire.memfd("bank", 1024),))
    if isinstance(question, messages.Ask):
        assert (question.case, question.kind, question.size) == ("main", "host", 64)
        say(Answer(os.pread(fds[0], 5, 0).decode(), stale=True))
    if isinstance(question, messages.Mutate):
        say(Mutated((Mutant("zeros", "main", True),)))
    if isinstance(question, messages.Measure):
        say(Measured((("copy_GBps", 4250.0),)))
"""
    with oracle(tmp_path, body) as asked:
        assert asked.describe(("main",)).limits == ((1.0, 2.0),)
        bank, fd = asked.fill("main", ((1, 2, 3, 4), (5, 6, 7, 8)), "host")
        assert bank.draws == 2
        wire.check(fd, 1024)
        os.close(fd)
        audit = wire.memfd("audit", 64)
        os.pwrite(audit, b"wrong", 0)
        answer = asked.ask("main", audit, 64)
        os.close(audit)
        assert (answer.wrong, answer.stale) == ("wrong", True)
        assert asked.mutate().mutants[0].killed
        assert dict(asked.measure().numbers) == {"copy_GBps": 4250.0}
        assert asked.starts == 1


def test_an_error_of_the_humans_files_is_a_task_error(tmp_path: Path) -> None:
    body = """
def on(question, fds):
    say(Described(error="`x` is not on the device", where="reference.py:12", next_step="make it there"), (wire.memfd("stray", 8),))
"""
    before = set(os.listdir("/proc/self/fd"))
    with oracle(tmp_path, body) as asked:
        for _ in range(2):  # it lives on
            with pytest.raises(TaskError) as caught:
                asked.describe()
            error = caught.value
            assert (error.what, error.where, error.next_step) == (
                "`x` is not on the device",
                "reference.py:12",
                "make it there",
            )
        assert asked.starts == 1
    assert set(os.listdir("/proc/self/fd")) == before


def test_after_a_death_the_next_question_starts_it_again(tmp_path: Path) -> None:
    body = "def on(question, fds):\n    say(Answer('fine')) if number else os.kill(os.getpid(), signal.SIGSEGV)"
    with oracle(tmp_path, body) as asked:
        with pytest.raises(TaskError, match="no answer while judging a result: it was ended by SIGSEGV") as caught:
            asked.ask("main", 0, 64)
        assert caught.value.where == "reference.py, case main"
        assert asked.ask("main", 0, 64).wrong == "fine"
        assert asked.starts == 2


def test_silence_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "DESCRIBE_S", 0.3)
    with oracle(tmp_path, "def on(question, fds): time.sleep(600)") as asked:
        assert asked._peer is not None
        pid = asked._peer.process.pid
        with pytest.raises(TaskError, match="no answer while drawing inputs: no whole frame in the time allowed"):
            asked.describe()
        assert not Path(f"/proc/{pid}").exists()


def test_an_oracle_that_cannot_start(tmp_path: Path) -> None:
    with oracle(tmp_path, "raise SystemExit(4)") as asked, pytest.raises(TaskError, match=r"it exited \(code 4\)"):
        asked.describe()


def test_contents_without_memory_are_none(tmp_path: Path) -> None:
    with oracle(tmp_path, "def on(question, fds): say(Filled())") as asked, pytest.raises(TaskError, match="sent no contents"):
        asked.fill("main", ((1, 2, 3, 4),))
