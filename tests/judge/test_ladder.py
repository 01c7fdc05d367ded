"""What every judge does alike: rungs, measuring until the decision falls, the verdict of each end, direct measurements, the composite."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.judge import ladder as ladders
from keepfast.judge.decide import Measure
from keepfast.judge.endings import Failure
from keepfast.judge.ladder import Ladder, Outcome, Question, Suspect, composite, direct, until_decided
from keepfast.model import Case, Event, Fact, Kind, Phase, Reason, Round
from tests.judge.made_rounds import calibrated, one

CASES = (Case("a", ()), Case("b", (), use="correct"))
QUESTION = Question(CASES, "experiment 4", calibrated(sigma=0.001), ())


def measuring(d: Callable[[Measure], float | Failure]) -> tuple[Callable[[Measure], list[Round] | Failure], list[Measure]]:
    asked: list[Measure] = []

    def measure(step: Measure) -> list[Round] | Failure:
        asked.append(step)
        found = d(step)
        return found if isinstance(found, Failure) else [one(step.phase, found, a=found, b=found) for _ in range(step.rounds)]

    return measure, asked


def decided(d: Callable[[Measure], float | Failure], suspect: Suspect | None = None, after: int = 0) -> tuple[Outcome, list[Measure]]:
    measure, asked = measuring(d)
    return until_decided(QUESTION, measure, lambda rounds: suspect if len(rounds) > after else None), asked


# ---- until the decision falls


def test_a_gain_is_measured_to_the_end() -> None:
    found, asked = decided(lambda step: -0.5)
    assert found.kept
    assert [(s.phase, s.rounds) for s in asked] == [(Phase.SCREEN, 1), (Phase.TEST, 4), (Phase.CONFIRM, 6)]
    assert [r.phase for r in found.rounds] == [Phase.SCREEN] + [Phase.TEST] * 4 + [Phase.CONFIRM] * 6
    assert [(c.case, c.estimate.opponent) for c in found.cases] == [("a", "experiment 4"), ("b", "experiment 4")]


def test_a_loss_ends_with_the_first_round() -> None:
    found, asked = decided(lambda step: 0.5)
    assert not found.kept
    assert len(asked) == len(found.rounds) == 1


def test_a_failure_keeps_what_was_measured_before() -> None:
    crash = Failure(Reason.CRASH, "x")
    found, _ = decided(lambda step: crash if step.phase is Phase.TEST else -0.5)
    assert (found.end, found.kept, len(found.rounds), found.cases) == (crash, False, 1, ())


def test_what_cannot_be_is_asked_after_every_measurement() -> None:
    suspect = Suspect(Reason.TOO_FAST, "x")
    found, asked = decided(lambda step: -0.5, suspect, after=1)
    assert (found.end, found.kept, len(found.rounds)) == (suspect, False, 5)
    assert [s.phase for s in asked] == [Phase.SCREEN, Phase.TEST]


# ---- rungs and verdicts


def ladder() -> tuple[Ladder, list[Event]]:
    told: list[Event] = []
    return Ladder("partial", told.append), told


def test_rungs_are_told_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 11.0, 13.0, 17.0, 17.5])
    monkeypatch.setattr(ladders.time, "monotonic", lambda: next(now))
    made, told = ladder()
    made.rung("guard", True, [Fact("change", "1 file")])
    made.rung("build", True)
    found = made.fail("plan", Failure(Reason.HANG, "no answer", True), "c0de")
    assert [(r.name, r.ok, r.seconds) for r in found.rungs] == [("guard", True, 1.0), ("build", True, 2.0), ("plan", False, 4.0)]
    assert found.rungs[0].facts == (Fact("change", "1 file"),)
    assert (found.kind, found.reason, found.detail, found.cheat, found.code) == (Kind.REJECT, Reason.HANG, "no answer", True, "c0de")
    assert (found.walls, found.seconds) == ("partial", 7.5)
    assert [(e.kind, e.text, e.numbers) for e in told] == [
        ("rung", "guard", (("ok", 1.0),)),
        ("rung", "build", (("ok", 1.0),)),
        ("rung", "plan", (("ok", 0.0),)),
    ]


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_its_kind(reason: Reason) -> None:
    made, _ = ladder()
    assert made.end(reason, "").reason is reason


def test_the_verdict_of_a_decision_has_all_that_was_found() -> None:
    outcome, _ = decided(lambda step: -0.5)
    found = ladder()[0].timed(outcome, "c0de")
    assert (found.kind, found.reason, found.code) == (Kind.KEEP, Reason.FASTER, "c0de")
    assert found.gain is not None
    assert (found.gain.d, found.gain.opponent, found.screen) == (pytest.approx(-0.5), "experiment 4", -0.5)
    assert None not in (found.test, found.mde, found.false_keep)
    assert (found.rounds, found.cases) == (outcome.rounds, outcome.cases)


@pytest.mark.parametrize(
    ("end", "kind", "cheat"),
    [
        (Failure(Reason.STATEFUL, "why", True), Kind.REJECT, True),
        (Failure(Reason.UNSTABLE, "why"), Kind.REJECT, False),
        (Suspect(Reason.INTERFERENCE, "why"), Kind.SUSPECT, False),
    ],
)
def test_the_verdict_of_a_failure_or_a_suspicion_has_its_rounds_and_claims_nothing(end: Failure | Suspect, kind: Kind, cheat: bool) -> None:
    rounds = (one(Phase.SCREEN, -0.5),)
    found = ladder()[0].timed(Outcome(end, rounds), "c0de")
    assert (found.kind, found.reason, found.detail, found.cheat) == (kind, end.reason, "why", cheat)
    assert (found.rounds, found.gain, found.cases, found.code) == (rounds, None, (), "c0de")


# ---- sums


def test_a_direct_measurement_sums_up_composite_and_cases() -> None:
    rounds = [one(Phase.DIRECT, d, a=d, b=2 * d) for d in (-0.1, -0.2, -0.3)]
    found = direct(7, "start", rounds, calibrated(sigma=0.01, cases={"b": 0.5}), True)
    assert (found.n, found.against, found.final, found.estimate.opponent) == (7, "start", True, "start")
    assert found.estimate.d == pytest.approx(-0.2)
    assert found.when > 0
    assert [(c.case, c.estimate.d) for c in found.cases] == [("a", pytest.approx(-0.2)), ("b", pytest.approx(-0.4))]
    assert found.cases[0].subject_ns == pytest.approx(1e6 * math.exp(-0.2))
    assert found.cases[0].opponent_ns == 1e6
    wide, narrow = found.cases[1].estimate, found.cases[0].estimate  # each case by its own noise
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_a_direct_measurement_takes_cases_of_any_round() -> None:
    found = direct(7, "start", [one(Phase.DIRECT, 0.1, a=0.1), one(Phase.DIRECT, 0.1, a=0.1, b=0.3)], calibrated(), False)
    assert [(c.case, c.estimate.rounds) for c in found.cases] == [("a", 2), ("b", 1)]


WEIGHTS = st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 10), min_size=1)
FOUND = st.lists(st.tuples(st.sampled_from("abcde"), st.floats(-2, 2)), max_size=5)


@given(WEIGHTS, FOUND)
def test_the_composite_lies_between_its_cases_and_takes_no_others(weights: dict[str, float], found: list[tuple[str, float]]) -> None:
    known = [d for case, d in found if case in weights]
    value = composite(weights, found)
    assert min(known, default=0.0) - 1e-9 <= value <= max(known, default=0.0) + 1e-9
    assert value == pytest.approx(composite({k: 3 * w for k, w in weights.items()}, found))
    assert value == composite(weights, [*found, ("untimed", 5.0)])


def test_the_composite_is_a_weighted_mean() -> None:
    assert composite({"a": 3.0, "b": 1.0}, [("a", -0.4), ("b", 0.4)]) == pytest.approx(-0.2)
    assert composite({"a": 3.0}, [("b", 0.4)]) == 0.0
