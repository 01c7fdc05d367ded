"""Sentences for how a runner failed."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.judge import endings
from keepfast.judge.endings import Buffer, Crash
from keepfast.model import SENTENCES, Kind, Reason

BUFFERS = (Buffer("x", 100, False), Buffer("y", 100, True))


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (-signal.SIGKILL, Reason.LIMITS, "memory ran out"),
        (-signal.SIGXCPU, Reason.LIMITS, "CPU time"),
        (-signal.SIGXFSZ, Reason.LIMITS, "file"),
        (-signal.SIGSEGV, Reason.CRASH, "SIGSEGV: touched memory that it may not: a read-only argument"),
        (-signal.SIGSYS, Reason.CRASH, "system call"),
        (-signal.SIGUSR1, Reason.CRASH, "ended by signal 10"),
        (-50, Reason.CRASH, "ended by signal 50"),
        (0, Reason.CRASH, "exited (code 0)"),
    ],
)
def test_ended(status: int, reason: Reason, said: str) -> None:
    found = endings.ended(status, None, BUFFERS, "")
    assert found.reason is reason
    assert said in found.detail


def test_what_the_runner_said_refines_the_wording() -> None:
    crash = Crash.of({"op": "crash", "signal": 11, "code": 2, "address": 7, "buffer": 0, "offset": 4})
    assert endings.ended(-11, crash, BUFFERS, "").detail == "SIGSEGV: wrote to a read-only argument (byte 4 of x)"
    aborted = Crash.of({"signal": 6, "code": -6})  # abort() in process 1 of a namespace ends as SIGSEGV
    assert endings.ended(-11, aborted, BUFFERS, "double free").detail == "SIGABRT: it gave up by abort(); its last words: double free"


def test_a_signal_that_the_runner_never_speaks_of_is_not_believed() -> None:
    """A candidate that says it was killed by the kernel does not choose the reason `limits`."""
    assert Crash.of({"op": "crash", "signal": 9}) is None
    assert Crash.of({"op": "crash", "signal": 24}) is None
    assert Crash.of({"op": "crash", "signal": 11}) is not None


hostile = st.dictionaries(
    st.sampled_from(["op", "signal", "code", "address", "buffer", "offset", "stack"]),
    st.one_of(st.integers(-(2**70), 2**70), st.booleans(), st.text(), st.none(), st.floats(), st.lists(st.integers())),
)


@given(hostile, st.sampled_from([0, 3, -6, -9, -11, -64]), st.text())
def test_whatever_it_says_the_answer_is_a_short_reject(said: dict[str, object], status: int, last_words: str) -> None:
    found = endings.ended(status, Crash.of(said), BUFFERS, last_words)
    assert SENTENCES[found.reason][0] is Kind.REJECT
    assert 0 < len(found.detail) <= endings.MAX_DETAIL


def test_silence_says_what_it_was_doing() -> None:
    assert "it was computing (2.90 s" in endings.silent(3.0, 2_900_000_000, "call").detail
    assert "it was waiting (0.00 s" in endings.silent(3.0, 1000, "call").detail
