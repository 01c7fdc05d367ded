"""When the calibration is looked at again."""

from __future__ import annotations

from keepfast.judge.watch import EVERY, REST, Watch
from keepfast.model import CaseRound, Phase, Round


def seen(opponent_ns: float, sentinel_ns: float = 1000.0) -> list[Round]:
    return [Round(Phase.TEST, 0.0, (CaseRound("a", 0.0, opponent_ns, opponent_ns),), sentinel_ns)] * 3


def test_every_so_many_evaluations() -> None:
    watch = Watch()
    assert [watch.due() for _ in range(2 * EVERY)] == [(n + 1) % EVERY == 0 for n in range(2 * EVERY)]


def test_drift_against_the_sentinel_asks_for_a_look_and_rests_afterwards() -> None:
    watch = Watch()
    for _ in range(REST):
        watch.due()
    watch.saw("x", seen(500.0))
    watch.saw("x", seen(1000.0, 2000.0))  # the whole core is slower: no drift
    assert not watch.drifted
    watch.saw("x", seen(515.0))
    assert watch.due()
    watch.saw("x", seen(530.0))
    assert [watch.due() for _ in range(REST)] == [False] * (REST - 1) + [True]


def test_another_champion_has_a_pace_of_its_own() -> None:
    watch = Watch()
    watch.saw("x", seen(500.0))
    watch.saw("y", seen(300.0))
    watch.saw("y", [])
    assert not watch.drifted
