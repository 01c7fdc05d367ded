"""Rounds and calibrations made by hand, and a judge that measures what the rule asks for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from keepfast.judge.decide import Decision, Evidence, Measure, Step, next_step
from keepfast.model import Calibration, CaseRound, Phase, Round

PER_PHASE = {Phase.SCREEN: 1, Phase.TEST: 8, Phase.CONFIRM: 6, Phase.CASES: 6}


def calibrated(sigma: float = 0.006, offset: float = 0.0, layout: float = 0.0, cases: dict[str, float] | None = None) -> Calibration:
    return Calibration("m", sigma, offset, layout, tuple((cases or {}).items()), 12, 0.0, 3.0, 0.0)


def one(phase: Phase, d: float, **cases: float) -> Round:
    found = cases or {"a": d}
    return Round(phase, d, tuple(CaseRound(name, c, 1e6 * math.exp(c), 1e6) for name, c in found.items()))


def rounds(screen: float, test: list[float], confirm: list[float] = []) -> tuple[Round, ...]:  # noqa: B006
    tested = tuple(one(Phase.TEST, d) for d in test)
    return (one(Phase.SCREEN, screen), *tested, *(one(Phase.CONFIRM, d) for d in confirm))


def decide(found: tuple[Round, ...], calibration: Calibration | None = None) -> Step:
    return next_step(calibration or calibrated(), Evidence(found), ())


def judge(calibration: Calibration, draw: Callable[[Phase], Round], evidence: Evidence | None = None) -> tuple[Decision, tuple[Round, ...]]:
    """Measures what is asked until the decision falls; fails when the rule asks for more than it may."""
    evidence = evidence or Evidence(())
    while isinstance(step := next_step(calibration, evidence, ()), Measure):
        assert step.rounds >= 1
        evidence = Evidence(evidence.rounds + tuple(draw(step.phase) for _ in range(step.rounds)), evidence.cases)
        assert all(n <= PER_PHASE[phase] for phase, n in Counter(r.phase for r in evidence.rounds).items())
    return step, evidence.rounds
