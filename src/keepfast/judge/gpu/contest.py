"""One subject against its opponent, from the screen to the last round; from confirm on with new contents and other captures.

Owns which duel is in force and what a confirmed gain is held against. Must not know how a decision falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keepfast.judge import decide
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.rounds import Duel, Rounds
from keepfast.judge.gpu.stages import too_fast
from keepfast.judge.ladder import Suspect
from keepfast.model import Case, Machine, Phase, Reason, Round
from keepfast.stats import median


class Contest:
    """`duel` makes one on the contents in use now; `renew` draws new ones and captures both arms again."""

    def __init__(self, rounds: Rounds, machine: Machine, duel: Callable[[], Duel], renew: Callable[[], Failure | None]) -> None:
        self.rounds, self.machine, self._duel, self._renew = rounds, machine, duel, renew
        self.duel = duel()
        self.confirmed: list[Round] = []

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(t.stage.case for t in self.duel.timed + self.duel.extra)

    def measure(self, step: decide.Measure) -> list[Round] | Failure:
        if step.phase is not Phase.CONFIRM:
            return self.rounds.measure(self.duel, step)
        if failure := self._renew():
            return failure
        self.duel = self._duel()
        found = self.rounds.measure(self.duel, step)
        self.confirmed += [] if isinstance(found, Failure) else found
        return found

    def impossible(self, rounds: Sequence[Round]) -> Suspect | None:
        """Faster than this card can be?"""
        for timing in self.duel.timed:
            times = [c.subject_ns for r in rounds for c in r.cases if c.case == timing.name]
            if times and (why := too_fast(timing.stage, median(times), self.machine, timing.calls)):
                return Suspect(Reason.TOO_FAST, why)
        return None

    def interference(self) -> Suspect | None:
        """Do both arms alone say what they said together in the confirm rounds?"""
        return self.rounds.interference(self.duel, self.confirmed)
