"""The rung `time`: measures what the decision asks for until the decision is made.

Every round is timed by the clock, every odd set and every drawn set goes to the reference, every case is held against
physics. Must not know git, the ledger or builds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.judge import compare, decide, physics
from keepfast.judge.channel import Failure, RunnerSpec
from keepfast.judge.clock import Clock, Disturbed, Odd, Timed, Timing
from keepfast.judge.ladder import Outcome, Question, Suspect, until_decided
from keepfast.judge.reference import Reference
from keepfast.judge.sets import Draw, view
from keepfast.model import Calibration, CaseStanding, CaseTime, Machine, Phase, Reason, Round

PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 0.0)  # after a disturbed round, before it is measured again
TINY_NS = 300_000  # a window shorter than this cannot be timed beside the cost of stopping

Progress = Callable[[Phase, Round], None]


class Pair(Struct, frozen=True):
    """Two arms and the cases that they are timed on. `extra`: cases timed once in confirm."""

    subject: RunnerSpec
    opponent: RunnerSpec
    opponent_name: str
    timed: tuple[Timed, ...]
    extra: tuple[Timed, ...] = ()


class Trial:
    def __init__(self, clock: Clock, reference: Reference, machine: Machine, progress: Progress) -> None:
        self.clock, self.reference, self.machine, self.progress = clock, reference, machine, progress
        self.task = reference.task

    def run(self, pair: Pair, calibration: Calibration, standing: tuple[CaseStanding, ...], rule: decide.Rule = decide.RULE) -> Outcome:
        """Measure until the decision falls."""
        cases = tuple(t.bank[0].case for t in pair.timed + pair.extra)
        question = Question(cases, pair.opponent_name, calibration, standing, rule)
        found = until_decided(question, lambda step: self.measure(pair, step), lambda rounds: self._impossible(pair, rounds))
        return replace(found, cases=self._with_limits(found.cases, pair))

    def measure(self, pair: Pair, step: decide.Measure) -> list[Round] | Failure:
        """Rounds of one phase; the sets drawn in it go to the reference together, when no runner is left."""
        rounds, drawn = [], list[tuple[Draw, object]]()
        first_confirm = step.phase is Phase.CONFIRM
        for number in range(step.rounds):
            cases = self._cases(pair, step, first_confirm and number == 0)
            timing = self._once(step.phase, pair, cases)
            if isinstance(timing, Failure):
                return timing
            if wrong := self._odd(timing.odd):
                return wrong
            drawn += timing.drawn
            rounds.append(timing.round)
            self.progress(step.phase, timing.round)
        return self._verified(drawn) or rounds

    def _cases(self, pair: Pair, step: decide.Measure, all_cases: bool) -> tuple[Timed, ...]:
        if step.phase is Phase.CASES:
            return tuple(t for t in pair.timed + pair.extra if t.name in step.cases)
        return pair.timed + pair.extra if all_cases else pair.timed

    def _once(self, phase: Phase, pair: Pair, cases: tuple[Timed, ...]) -> Timing | Failure:
        """One round; a disturbed one is measured again after a pause, and the last is taken when it is usable at all."""
        said, usable = "", None
        for pause_s in PAUSES_S:
            found = self.clock.round(phase, (pair.subject, pair.opponent), cases)
            if isinstance(found, Timing) or (isinstance(found, Failure) and found.reason is not Reason.MACHINE):
                return found
            said = found.detail
            if isinstance(found, Disturbed) and (wrong := self._odd(found.odd)):
                return wrong  # noise spoils times, not results
            usable = found.usable if isinstance(found, Disturbed) and found.usable else usable
            time.sleep(pause_s)
        if usable is not None:
            return usable
        raise MachineError(
            f"{len(PAUSES_S)} rounds in a row were disturbed: {said}",
            next_step="stop what else runs here (keepfast doctor names it), then try again",
        )

    def _odd(self, found: Sequence[Odd]) -> Failure | None:
        """Sets in which the arms differ by more than two right answers can: is the subject wrong?"""
        for odd in found:
            if odd.canary:
                return Failure(Reason.OUT_OF_BOUNDS, f"case {odd.draw.case.name}: wrote beside its outputs while timed", True)
        return self._verified([(odd.draw, odd.got) for odd in found])

    def _verified(self, drawn: Sequence[tuple[Draw, object]]) -> Failure | None:
        """The reference's word on timed sets. Right in the check and wrong in the clock is a trick of its own."""
        if not drawn:
            return None
        for (draw, got), results in zip(drawn, self.reference.results([d for d, _ in drawn]), strict=True):
            limits = (compare.reduction_length(self.task, draw.case), self.task.tolerance.scale)
            for name, working, exact in zip(self.task.signature.results, results.working, results.exact, strict=True):
                found = compare.judge(name, view(got, draw.layout.slot(name)), working, exact, limits)  # type: ignore[arg-type]
                if isinstance(found, compare.Mismatch) and not self._excused(draw, got):
                    return Failure(Reason.WRONG, f"case {draw.case.name}, while timed: {found.detail}", True)
        return None

    def _excused(self, draw: Draw, got: object) -> bool:
        return self.reference.has_compare and not self.reference.compare(draw, got)  # type: ignore[arg-type]

    def _impossible(self, pair: Pair, rounds: Sequence[Round]) -> Suspect | None:
        for timed in pair.timed:
            times = [c.subject_ns for r in rounds for c in r.cases if c.case == timed.name]
            limit = physics.limit_ns(self.task, timed.bank[0], self.machine, timed.count)
            if times and (why := physics.too_fast(timed.bank[0].case, sorted(times)[len(times) // 2], limit)):
                return Suspect(Reason.TOO_FAST, why)
        return None

    def _with_limits(self, cases: tuple[CaseTime, ...], pair: Pair) -> tuple[CaseTime, ...]:
        known = {t.name: physics.limit_ns(self.task, t.bank[0], self.machine, t.count) for t in pair.timed + pair.extra}
        return tuple(replace(c, limit_ns=known.get(c.case)) for c in cases)
