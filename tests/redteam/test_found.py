"""What the redteam found, and the roots that were mended: see docs/decisions/0009."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.judge import trial
from keepfast.judge.channel import Call
from keepfast.judge.clock import Disturbed, Odd
from keepfast.judge.endings import Failure
from keepfast.model import Reason
from keepfast.walls.base import Walls
from tests.judge.channel.kit import SLOW_S, candidate
from tests.judge.test_trial import PAIR, TEST, ScriptedClock, SquareReference, drawn, on, written

JOINED = """#include <pthread.h>
static void *work(void *p) { return p; }
CALL {
    for (int i = 0; i < 4000; i++) {
        pthread_t t;
        if (pthread_create(&t, 0, work, 0)) return 1;
        pthread_join(t, 0);
    }
    return 0;
}"""


@pytest.fixture
def folder(walls: Walls) -> Iterator[Path]:
    made = walls.folder()
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def test_a_thread_that_was_joined_may_be_followed_by_another(walls: Walls, folder: Path) -> None:
    """The kernel counts it until it has left, a moment later."""
    with candidate(walls, JOINED, folder, threads=2) as rig:
        assert rig.runner.load(SLOW_S) is None
        done = rig.runner.call(0, 1, SLOW_S)
    assert isinstance(done, Call), done


def test_a_wrong_answer_in_a_disturbed_round_is_wrong_and_not_void(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(trial.time, "sleep", slept.append)
    draw = drawn()
    clock = ScriptedClock(Disturbed("busy", odd=(Odd(draw, written(draw, error=1.0), "out", False),)))
    found = on(clock).measure(PAIR, TEST)
    assert isinstance(found, Failure)
    assert found.reason is Reason.WRONG
    assert len(clock.asked) == 1
    assert slept == []


def test_a_canary_that_was_touched_in_a_disturbed_round_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.time, "sleep", lambda s: None)
    draw = drawn()
    found = on(ScriptedClock(Disturbed("busy", odd=(Odd(draw, written(draw), "", True),)))).measure(PAIR, TEST)
    assert isinstance(found, Failure)
    assert found.reason is Reason.OUT_OF_BOUNDS


def test_what_differs_within_the_budget_in_a_disturbed_round_is_still_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.time, "sleep", lambda s: None)
    draw, reference = drawn(), SquareReference()
    usable = ScriptedClock(Disturbed("busy", odd=(Odd(draw, written(draw), "out", False),)), *([Failure(Reason.CRASH, "later")]))
    found = on(usable, reference).measure(PAIR, TEST)
    assert found == Failure(Reason.CRASH, "later"), "measured again"
    assert reference.asked == 1
