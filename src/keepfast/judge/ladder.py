"""What every judge does alike: collect rungs, measure until the decision falls, turn the end into a verdict, sum up direct rounds.

Must not know processes, devices, git or the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from keepfast.judge import decide
from keepfast.judge.endings import Failure
from keepfast.model import (
    SENTENCES,
    Calibration,
    Case,
    CaseStanding,
    CaseTime,
    Direct,
    Event,
    Fact,
    Kind,
    Reason,
    Round,
    Rung,
    Verdict,
)
from keepfast.stats import estimate, median

Measuring = Callable[[decide.Measure], "list[Round] | Failure"]


class Suspect(Struct, frozen=True):
    reason: Reason
    detail: str


class Outcome(Struct, frozen=True):
    """How timing ended, with every round that was measured."""

    end: decide.Decision | Failure | Suspect
    rounds: tuple[Round, ...]
    cases: tuple[CaseTime, ...] = ()

    @property
    def kept(self) -> bool:
        return isinstance(self.end, decide.Decision) and self.end.kind is Kind.KEEP


class Question(Struct, frozen=True):
    """What is decided: over which cases, against whom, with what noise and what losses so far."""

    cases: tuple[Case, ...]
    opponent: str
    calibration: Calibration
    standing: tuple[CaseStanding, ...]
    rule: decide.Rule = decide.RULE


def until_decided(question: Question, measure: Measuring, impossible: Callable[[Sequence[Round]], Suspect | None]) -> Outcome:
    """Measure what the decision asks for until it falls."""
    rounds: list[Round] = []
    while True:
        evidence = decide.Evidence(tuple(rounds), question.cases, question.opponent)
        step = decide.next_step(question.calibration, evidence, question.standing, question.rule)
        if isinstance(step, decide.Decision):
            return Outcome(step, tuple(rounds), step.cases)
        found = measure(step)
        if isinstance(found, Failure):
            return Outcome(found, tuple(rounds))
        rounds += found
        if suspect := impossible(rounds):
            return Outcome(suspect, tuple(rounds), _case_times(rounds, question.opponent, question.calibration))


class Ladder:
    """Collects the rungs of one evaluation and turns its end into a verdict. `strength`: of the walls."""

    def __init__(self, strength: str, emit: Callable[[Event], None]) -> None:
        self.strength, self.emit, self.rungs, self.began = strength, emit, list[Rung](), time.monotonic()
        self.last = self.began

    def rung(self, name: str, ok: bool, facts: Sequence[Fact] = ()) -> None:
        now = time.monotonic()
        self.rungs.append(Rung(name, ok, now - self.last, tuple(facts)))
        self.last = now
        self.emit(Event("rung", name, numbers=(("ok", float(ok)),)))

    def end(self, reason: Reason, detail: str, *, cheat: bool = False, code: str = "") -> Verdict:
        return Verdict(
            SENTENCES[reason][0],
            reason,
            detail,
            tuple(self.rungs),
            code=code,
            walls=self.strength,
            seconds=time.monotonic() - self.began,
            cheat=cheat,
        )

    def fail(self, name: str, failure: Failure, code: str = "") -> Verdict:
        """The rung `name` was not passed."""
        self.rung(name, False)
        return self.end(failure.reason, failure.detail, cheat=failure.cheat, code=code)

    def timed(self, outcome: Outcome, code: str) -> Verdict:
        """The verdict of a subject that was timed."""
        end = outcome.end
        if isinstance(end, Failure | Suspect):
            cheat = end.cheat if isinstance(end, Failure) else False
            told = () if isinstance(end, Failure) else outcome.cases  # what a human needs who looks at a suspect
            return replace(self.end(end.reason, end.detail, cheat=cheat, code=code), rounds=outcome.rounds, cases=told)
        return replace(
            self.end(end.reason, end.detail, code=code),
            rounds=outcome.rounds,
            gain=end.gain,
            test=end.test,
            screen=end.screen,
            cases=outcome.cases,
            mde=end.mde,
            false_keep=end.false_keep,
        )


def direct(n: int, opponent: str, rounds: Sequence[Round], calibration: Calibration, final: bool) -> Direct:
    """A direct measurement of experiment `n`, summed up."""
    cases = _case_times(rounds, opponent, calibration)
    made = estimate([r.d for r in rounds], opponent, calibration.sigma)
    return Direct(n, opponent, made, cases, final, time.time())


def _case_times(rounds: Sequence[Round], opponent: str, calibration: Calibration) -> tuple[CaseTime, ...]:
    names = dict.fromkeys(c.case for r in rounds for c in r.cases)
    return tuple(_case_time(rounds, name, opponent, calibration) for name in names)


def _case_time(rounds: Sequence[Round], case: str, opponent: str, calibration: Calibration) -> CaseTime:
    found = [c for r in rounds for c in r.cases if c.case == case]
    made = estimate([c.d for c in found], opponent, calibration.sigma_of(case))
    return CaseTime(case, made, median([c.subject_ns for c in found]), median([c.opponent_ns for c in found]))


def composite(weights: dict[str, float], found: Sequence[tuple[str, float]]) -> float:
    """Weighted mean of the log-ratios of cases; cases without a weight do not count."""
    known = [(d, weights[case]) for case, d in found if case in weights]
    return sum(d * w for d, w in known) / sum(w for _, w in known) if known else 0.0
