"""What this card can tell apart: the start against itself in two captures, and against captures in other arenas.

Owns which captures are compared; the arithmetic is the CPU judge's, judge/calibrate.py. Must not know verdicts or the ledger.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from keepfast.judge import calibrate
from keepfast.judge.gpu.arms import Arms, Artifact
from keepfast.judge.gpu.rounds import Duel
from keepfast.model import Calibration, Event, Phase, Round

LAYOUTS = 4  # captures in other arenas that are compared
FIRST = 2  # the number of the first of them: 0 and 1 are the two that are the same

Measuring = Callable[[Duel, Phase, int], list[Round]]


class Noise:
    """`measure`: so many rounds on a quiet card; MachineError when that fails. Duels are of an artifact against itself."""

    def __init__(self, arms: Arms, machine: str, emit: Callable[[Event], None], measure: Measuring) -> None:
        """`machine`: its hash."""
        self.arms, self.machine, self.emit, self.measure = arms, machine, emit, measure

    def run(self, artifact: Artifact, duel: Duel) -> Calibration:
        others = range(FIRST, FIRST + LAYOUTS)
        for take in (0, 1, *others):
            self.arms.kept(artifact, take)
        self.emit(Event("calibrate", "the same kernel in both arms", numbers=(("rounds", float(calibrate.ROUNDS)),)))
        same = self.measure(_takes(duel, 0, 1), Phase.CALIBRATE, calibrate.ROUNDS)
        self.emit(Event("calibrate", "the same code in other places", numbers=(("captures", float(LAYOUTS)),)))
        moved = [self.measure(_takes(duel, take, 0), Phase.LAYOUT, calibrate.PAD_ROUNDS) for take in others]
        for take in others:
            artifact.takes.pop(take, None)
        return calibrate.found(self.machine, same, moved, {t.name: t.calls for t in duel.timed})

    def again(self, before: Calibration, artifact: Artifact, duel: Duel) -> Calibration:
        """A later look with few rounds: noise that has clearly grown replaces the calibrated one, and is said."""
        for take in (0, 1):
            self.arms.kept(artifact, take)
        return calibrate.later(before, self.measure(_takes(duel, 0, 1), Phase.CALIBRATE, calibrate.AGAIN), self.emit)


def _takes(duel: Duel, subject: int, opponent: int) -> Duel:
    return replace(duel, takes=((subject, opponent), (subject, opponent)))
