"""What this machine can tell apart: the same kernel in both arms, and the same meaning in another layout.

Gives sigma, offset and layout noise of docs/verdict.md. Must not know verdicts or the ledger.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.judge import decide
from keepfast.judge.arms import Arms
from keepfast.judge.channel import Failure, RunnerSpec
from keepfast.judge.clock import Timed
from keepfast.judge.trial import Pair, Trial
from keepfast.model import Calibration, Candidate, Event, Machine, Phase, Round
from keepfast.stats import mean, median, sample_sd

ROUNDS = 8
PADS = (1, 2, 3, 5, 8)  # cache lines of padding, one build each
PAD_ROUNDS = 3
MEDIAN_OF_THREE = 0.449  # variance of the median of three normal values, over that of one
AGAIN = 4  # rounds of a later look
SIGMA_FLOOR = 2e-4  # no clock of ours is better than this
CONFIDENCE = 1.25  # sigma from few rounds is itself uncertain: SD of 8 rounds is within 25 % two times in three


class Calibrator:
    def __init__(self, trial: Trial, arms: Arms, machine: Machine, emit: Callable[[Event], None]) -> None:
        self.trial, self.arms, self.machine, self.emit = trial, arms, machine, emit

    def run(self, start: Candidate, spec: RunnerSpec, timed: tuple[Timed, ...]) -> Calibration:
        self.emit(Event("calibrate", "the same kernel in both arms", numbers=(("rounds", float(ROUNDS)),)))
        same = self._rounds(spec, spec, timed, ROUNDS, Phase.CALIBRATE)
        self.emit(Event("calibrate", "the same code in other places", numbers=(("builds", float(len(PADS))),)))
        padded = [self._rounds(self.arms.variant(start, pad), spec, timed, PAD_ROUNDS, Phase.LAYOUT) for pad in PADS]
        return found(self.machine.hash, same, padded, {t.name: t.count for t in timed})

    def again(self, before: Calibration, spec: RunnerSpec, timed: tuple[Timed, ...]) -> Calibration:
        """A later look with few rounds: noise that has clearly grown replaces the calibrated one, and is said."""
        return later(before, self._rounds(spec, spec, timed, AGAIN, Phase.CALIBRATE), self.emit)

    def _rounds(self, subject: RunnerSpec, opponent: RunnerSpec, timed: tuple[Timed, ...], count: int, phase: Phase) -> list[Round]:
        found = self.trial.measure(Pair(subject, opponent, "itself", timed), decide.Measure(phase, count))
        if isinstance(found, Failure):
            raise MachineError(f"calibration failed: {found.detail}", next_step="keepfast doctor")
        return found


def found(machine: str, same: Sequence[Round], builds: Sequence[Sequence[Round]], calls: Mapping[str, int]) -> Calibration:
    """What rounds of the same kernel, and of builds of equal meaning and other layout, give. `calls`: of each case, in a window."""
    sigma = max(SIGMA_FLOOR, CONFIDENCE * sample_sd([r.d for r in same]))
    return Calibration(
        machine=machine,
        sigma=sigma,
        offset=mean([r.d for r in same]),
        layout=_layout([[r.d for r in rounds] for rounds in builds], sigma),
        case_sigma=tuple((name, max(SIGMA_FLOOR, CONFIDENCE * _case_sd(same, name))) for name in calls),
        rounds=len(same),
        sentinel_ns=median([r.sentinel_ns for r in same]),
        block_ms=median([c.opponent_ns * calls[c.case] / 1e6 for r in same for c in r.cases]),
        when=time.time(),
        layouts=len(builds),
    )


def later(before: Calibration, again: Sequence[Round], emit: Callable[[Event], None]) -> Calibration:
    """`before`, or, when a later look with few rounds found clearly more noise, that noise; and it is said."""
    sd = sample_sd([r.d for r in again])
    if sd <= 2 * before.sigma:
        return before
    emit(Event("note", f"this machine has become noisier: SD between rounds {sd:.2%}, was {before.sigma:.2%}"))
    return replace(before, sigma=sd, when=time.time())


def _case_sd(rounds: Sequence[Round], case: str) -> float:
    return sample_sd([c.d for r in rounds for c in r.cases if c.case == case])


def _layout(builds: Sequence[Sequence[float]], sigma: float) -> float:
    """SD between builds of other layout, less what the rounds' own noise explains. A build's value is the median of its rounds."""
    if not builds:
        return 0.0
    within = math.sqrt(mean([sample_sd(ds) ** 2 for ds in builds]))
    noise = MEDIAN_OF_THREE * max(sigma, within) ** 2
    return math.sqrt(max(0.0, mean([median(ds) ** 2 for ds in builds]) - noise))
