"""Rounds of the GPU judge: which captures and cases they hold, when they are measured again, and who is wrong when arms differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from keepfast.errors import MachineError
from keepfast.gpu.messages import Audit, Run, Solo, Time, Tolerance
from keepfast.judge.decide import Measure
from keepfast.judge.endings import Failure
from keepfast.judge.gpu import rounds
from keepfast.judge.gpu.rounds import Duel, Rounds, Timing
from keepfast.model import Case, Phase, Reason, Round
from tests.judge.tasks import softmax_task

from .inside import Acts, FakeLaunchers, FakeOracle, FakePool, captured, stage, stock

MAIN, WIDE, ODD = stage("main", calls=5), stage("wide", calls=200), stage("odd", calls=1, use="correct")
STAGES = (MAIN, WIDE, ODD)
CASES = (Case("main", (("n", 8),), 3.0), Case("wide", (("n", 8),)), Case("odd", (("n", 8),), use="correct"))
BUDGETS = (Tolerance("float32", 64, 0.01, 0.04),)
TEST, CONFIRM = Measure(Phase.TEST, 2), Measure(Phase.CONFIRM, 2)


class Bench:
    """Rounds of a subject that does `acts` against an opponent that takes 10 us a call."""

    def __init__(self, opponent: dict[str, Any] | None = None, **acts: Any) -> None:
        self.oracle, self.launchers = FakeOracle(tuple(s.layout for s in STAGES)), FakeLaunchers()
        self.rounds = Rounds(softmax_task(axes=("n",), cases=CASES), self.launchers, self.oracle, Random(5))  # type: ignore[arg-type]
        self.unfit: list[str] = []
        self.told: list[tuple[Phase, float]] = []
        self.rounds.unfit = lambda: self.unfit.pop(0) if self.unfit else ""
        self.rounds.told = lambda phase, made: self.told.append((phase, made.d))
        self.stock = stock(self.oracle, *STAGES)
        pool, arms = FakePool(), (Acts(**{"code": "subject"} | acts), Acts(**{"code": "opponent"} | (opponent or {})))
        takes = [[captured(arm, *STAGES, pool=pool) for _ in range(2)] for arm in arms]
        timings = tuple(Timing(s, self.stock[s.name], BUDGETS, 10_000.0) for s in STAGES)
        self.duel = Duel(lambda n: takes[0][n], lambda n: takes[1][n], "experiment 1", timings[:2], timings[2:])

    def measure(self, step: Measure = TEST) -> list[Round] | Failure:
        found = self.rounds.measure(self.duel, step)
        assert self.launchers.alive == 0
        return found

    def measured(self, step: Measure = TEST) -> list[Round]:
        found = self.measure(step)
        assert isinstance(found, list), found
        return found

    def cases(self) -> list[str]:
        return [case for case, _ in self.launchers.timed()]


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses that would have been made."""
    found: list[float] = []
    monkeypatch.setattr(rounds.time, "sleep", found.append)
    return found


# ---- what a round is


def test_a_round_is_one_launcher_with_both_arms_case_after_case() -> None:
    bench = Bench(ns=5000.0, by_case={"wide": 4.0})
    found = bench.measured()
    assert bench.launchers.started == 2
    arms = (("subject", 0), ("opponent", 0))
    assert bench.launchers.opened == [("main", arms), ("wide", arms)] * 2
    one = found[0]
    assert (one.phase, one.sentinel_ns) == (Phase.TEST, pytest.approx(0.7e6))
    assert [(c.case, c.subject_ns, c.opponent_ns) for c in one.cases] == [
        ("main", pytest.approx(5000.0), pytest.approx(10_000.0)),
        ("wide", pytest.approx(20_000.0), pytest.approx(10_000.0)),
    ]
    assert len(one.cases[0].blocks) == rounds.BLOCKS
    assert one.seconds >= 0


def test_the_composite_weighs_cases_as_the_task_says() -> None:
    (one, _) = Bench(ns=5000.0, by_case={"wide": 4.0}).measured()
    assert one.d == pytest.approx(0.75 * math.log(0.5) + 0.25 * math.log(2.0))


def test_launches_last_a_millisecond_and_may_differ_by_twice_the_budget() -> None:
    bench = Bench()
    bench.measured(Measure(Phase.SCREEN, 1))
    orders = [o for o in bench.launchers.orders if isinstance(o, Time)]
    assert [(o.blocks, o.calls) for o in orders] == [(rounds.BLOCKS, 5), (rounds.BLOCKS, 100)]
    assert all(0 <= o.audit < o.calls for o in orders)
    assert bench.launchers.tolerances[0] == (Tolerance("float32", 64, 0.02, 0.08),)
    assert bench.oracle.asked == ["main", "wide"]


def test_confirm_uses_other_captures_and_its_first_round_all_cases() -> None:
    bench = Bench()
    bench.measured(CONFIRM)
    assert bench.cases() == ["main", "wide", "odd", "main", "wide"]
    assert {arms for _, arms in bench.launchers.timed()} == {(("subject", 1), ("opponent", 1))}


def test_in_confirm_a_launch_that_is_not_timed_has_some_calls_only() -> None:
    for step, expected in ((CONFIRM, True), (Measure(Phase.CASES, 2, ("wide",)), True), (TEST, False)):
        bench = Bench()
        bench.measured(step)
        orders = [o for o in bench.launchers.orders if isinstance(o, Time)]
        assert all((0 < o.some < o.calls) == (expected and o.calls > 1) for o in orders)
        assert all(o.some == 0 for o in orders if o.calls == 1 or not expected)


def test_undecided_cases_are_measured_alone_with_the_captures_of_confirm() -> None:
    bench = Bench()
    bench.measured(Measure(Phase.CASES, 2, ("odd", "wide")))
    assert bench.cases() == ["wide", "odd"] * 2
    assert {arms for _, arms in bench.launchers.timed()} == {(("subject", 1), ("opponent", 1))}


@pytest.mark.parametrize("phase", [Phase.SCREEN, Phase.TEST, Phase.DIRECT, Phase.CALIBRATE, Phase.LAYOUT])
def test_all_other_rounds_use_the_first_captures_and_timed_cases(phase: Phase) -> None:
    bench = Bench()
    bench.measured(Measure(phase, 1))
    assert bench.launchers.timed() == [(case, (("subject", 0), ("opponent", 0))) for case in ("main", "wide")]


def test_progress_is_told_round_by_round() -> None:
    bench = Bench()
    bench.measured()
    assert bench.told == [(Phase.TEST, 0.0)] * 2


def test_the_card_is_leased_for_a_round_and_for_an_arm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, held = Bench(), list[tuple[str, int]]()

    @contextmanager
    def lease(card: str) -> Iterator[None]:
        before = bench.launchers.started
        yield
        held.append((card, bench.launchers.started - before))

    monkeypatch.setattr(rounds.lease, "held_card", lease)
    bench.rounds.card = "GPU-1"
    found = bench.measured()
    bench.rounds.interference(bench.duel, found)
    assert held == [("GPU-1", 1)] * (2 + 4)


# ---- disturbed rounds

LATE = {"host_ratio": 1.06}
SLOW = {"sentinel_ms": (0.7, 0.9, 1.5)}


@pytest.mark.parametrize("fields", [LATE, {"host_ratio": 0.94}, SLOW])
def test_a_disturbed_round_is_measured_again_after_a_pause(fields: dict[str, Any], slept: list[float]) -> None:
    bench = Bench()
    bench.launchers.disturbed = [fields, {}, fields]  # the first case, then the second of the next try
    assert len(bench.measured()) == 2
    assert slept == list(rounds.PAUSES_S[:2])
    assert bench.cases() == ["main", "main", "wide", *["main", "wide"] * 2]
    assert len(bench.told) == 2


@pytest.mark.parametrize("fields", [{"host_ratio": 1.049}, {"host_ratio": 0.951}, {"sentinel_ms": (0.8, 1.0, 9.0)}])
def test_what_is_within_the_slack_counts(fields: dict[str, Any], slept: list[float]) -> None:
    bench = Bench()
    bench.launchers.disturbed = [fields]
    bench.measured()
    assert slept == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (LATE, r"the card's clock and the host's disagree by \+6\.0% over a slot"),
        (SLOW, "a fixed piece of arithmetic took a quarter longer than it can"),
    ],
)
def test_a_card_that_stays_disturbed_is_the_machines_matter(fields: dict[str, Any], why: str, slept: list[float]) -> None:
    bench = Bench()
    bench.launchers.disturbed = [fields] * 100
    with pytest.raises(MachineError, match=f"{len(rounds.PAUSES_S)} rounds in a row were disturbed: {why}") as error:
        bench.measure()
    assert error.value.next_step
    assert slept == list(rounds.PAUSES_S)
    assert bench.told == []


def test_pauses_can_be_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PAUSES_S", (0.0,))
    bench = Bench()
    bench.unfit = ["too hot"]
    with pytest.raises(MachineError, match="1 rounds in a row were disturbed: too hot"):
        bench.measure()


def test_a_card_that_was_not_fit_makes_the_round_count_for_nothing(slept: list[float]) -> None:
    bench = Bench()
    bench.unfit = ["train.py (pid 7) began to use the card", ""]
    assert len(bench.measured()) == 2
    assert slept == [rounds.PAUSES_S[0]]
    assert bench.launchers.started == 3


def test_a_disturbed_round_does_not_speak_against_the_next_one(slept: list[float]) -> None:
    bench = Bench()
    bench.launchers.disturbed = [LATE]
    bench.unfit = ["train.py (pid 7) began to use the card", "", ""]  # of the first, disturbed one
    bench.measured()
    assert len(slept) == 1


def test_a_subject_that_fails_is_not_asked_twice(slept: list[float]) -> None:
    bench = Bench(crashes=("timed",))
    bench.launchers.disturbed = [LATE]
    assert bench.measure() == Failure(Reason.CRASH, "case main: illegal address")
    assert (bench.launchers.started, slept) == (1, [])


def test_a_subject_that_cannot_be_opened() -> None:
    assert Bench(crashes=("open",)).measure() == Failure(Reason.CRASH, "case main: illegal address")


# ---- wrong while timed


@pytest.mark.parametrize(
    ("acts", "reason", "detail"),
    [
        ({"timed": {"inputs": 2}}, Reason.OUT_OF_BOUNDS, "an argument that is not marked `!` was changed"),
        ({"timed": {"early": 3}}, Reason.OUT_OF_BOUNDS, "a call wrote the results of other calls, which were not launched"),
        ({"timed": {"unwritten": 1}}, Reason.WRONG, "part of the results was never written"),
        ({"said": {"timed": {"wrong": "out[3] is 0"}}}, Reason.WRONG, "out[3] is 0"),
        ({"said": {"timed": {"wrong": "x", "stale": True}}}, Reason.STATEFUL, "new contents, and an old answer came back"),
    ],
)
def test_right_in_the_check_and_wrong_in_the_clock_is_a_trick(acts: dict[str, Any], reason: Reason, detail: str) -> None:
    for fields in ({}, LATE):  # also in a round that is disturbed
        bench = Bench(**acts)
        bench.launchers.disturbed = [fields]
        assert bench.measure() == Failure(reason, f"case main, while timed: {detail}", True)


def odd(*calls: int, opponent: dict[str, Any] | None = None, **acts: Any) -> Bench:
    """Arms that differed in these calls, launched again."""
    return Bench(opponent, timed={"odd": [[100 + i, call] for i, call in enumerate(calls)]}, **acts)


def test_of_arms_that_differ_the_subject_is_wrong() -> None:
    bench = odd(3, said={"subject": {"wrong": "out[3] is 0"}})
    assert bench.measure() == Failure(Reason.WRONG, "case main: out[3] is 0", True)
    assert bench.launchers.orders[1:] == [Run(0, 100, 5, keep=True), Audit(0, 3)]


def test_of_arms_that_differ_the_opponent_is_wrong() -> None:
    bench = odd(3, opponent={"said": {"opponent": {"wrong": "out[3] is 0"}}})
    with pytest.raises(MachineError, match="the opponent is wrong on timed contents: case main: out\\[3\\] is 0"):
        bench.measure()
    assert bench.launchers.orders[1:] == [Run(0, 100, 5, keep=True), Audit(0, 3), Run(1, 100, 5, against=True), Audit(1, 3)]


def test_both_are_right_and_differ_again_so_both_are_right() -> None:
    bench = odd(3, opponent={"ran": {"opponent": {"odd": [1, 3]}}})
    assert len(bench.measured(Measure(Phase.SCREEN, 1))) == 1
    assert bench.oracle.asked == ["main"] * 3 + ["wide"] * 3


def test_both_are_right_and_do_not_differ_again_so_the_subject_varies() -> None:
    bench = odd(3, opponent={"ran": {"opponent": {"odd": [1, 2]}}})
    detail = "case main, while timed: a call differed from the opponent's and was right when launched again"
    assert bench.measure() == Failure(Reason.UNSTABLE, detail)


def test_some_of_many_differences_are_looked_at() -> None:
    bench = odd(0, 1, 2, 3, 4, opponent={"ran": {"opponent": {"odd": [0, 1, 2, 3, 4]}}})
    bench.measured(Measure(Phase.SCREEN, 1))
    audits = [o for o in bench.launchers.orders if isinstance(o, Audit)]
    assert audits == [Audit(arm, i) for i in range(rounds.ODD_ASKED) for arm in (0, 1)] * 2


@pytest.mark.parametrize("moment", ["subject", "audit"])
def test_a_subject_that_faults_when_launched_again(moment: str) -> None:
    assert odd(3, crashes=(moment,)).measure() == Failure(Reason.CRASH, "case main: illegal address", True)


# ---- each arm alone


def test_both_arms_alone_say_what_they_said_together() -> None:
    bench = Bench(ns=5000.0, alone=1.014)
    found = bench.measured(CONFIRM)
    bench.launchers.orders.clear()
    bench.launchers.opened.clear()
    assert bench.rounds.interference(bench.duel, found) is None
    assert bench.launchers.opened == [(case, ((arm, 1),)) for case in ("main", "wide") for arm in ("subject", "opponent")]
    launches = rounds.ALONE_LAUNCHES
    assert bench.launchers.orders == [Solo(0, 5, launches)] * 2 + [Solo(0, 100, launches)] * 2
    assert bench.oracle.asked == ["main", "wide", "odd", "main", "wide"]


@pytest.mark.parametrize(("alone", "said"), [(1.03, "+3.0 %"), (0.97, "-3.0 %")])
def test_a_subject_that_is_another_when_alone_is_suspect(alone: float, said: str) -> None:
    bench = Bench(ns=5000.0, alone=alone)
    found = bench.rounds.interference(bench.duel, bench.measured(CONFIRM))
    assert found is not None
    assert found.reason is Reason.INTERFERENCE
    assert found.detail.startswith(f"case main: alone in its launcher the subject is {said} away from the shared ratio (")


@pytest.mark.parametrize("moment", ["open", "solo"])
def test_an_arm_that_fails_alone(moment: str) -> None:
    bench, other = Bench(), Bench(crashes=(moment,))
    found = bench.measured(CONFIRM)
    with pytest.raises(MachineError, match="a launcher with one arm failed: case main: illegal address"):
        other.rounds.interference(other.duel, found)
