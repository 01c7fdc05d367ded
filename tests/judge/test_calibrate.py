"""Calibration over rounds from a script: sigma, offset, layout noise, and a later look."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from keepfast.errors import MachineError
from keepfast.judge import calibrate
from keepfast.judge.arms import Arms
from keepfast.judge.builder import Built
from keepfast.judge.calibrate import Calibrator
from keepfast.judge.channel import Failure, RunnerSpec
from keepfast.judge.decide import Measure
from keepfast.judge.trial import Pair
from keepfast.model import Candidate, CaseRound, Event, Machine, Phase, Reason, Round
from keepfast.stats import sample_sd
from keepfast.walls.base import Walls
from tests.judge import tasks

MACHINE = Machine("cpu", 2, "6", "gcc", "walls", hash="here")
START = Candidate((), "start", "")
SPEC = RunnerSpec(("runner",), "start.so")
TIMED = (SimpleNamespace(name="a", count=10), SimpleNamespace(name="b", count=1))
NOISE = (0.01, -0.01, 0.02, -0.02, 0.0, 0.01, -0.01, 0.0)


class FakeTrial:
    """Rounds by subject: `d(artifact, i)` is the i-th log-ratio measured of an artifact."""

    def __init__(self, d: Callable[[str, int], float] | Failure) -> None:
        self.d, self.asked = d, dict[str, int]()

    def measure(self, pair: Pair, step: Measure) -> list[Round] | Failure:
        assert pair.opponent == SPEC
        if isinstance(self.d, Failure):
            return self.d
        return [self._round(self.d, pair.subject.artifact, step.phase) for _ in range(step.rounds)]

    def _round(self, d: Callable[[str, int], float], name: str, phase: Phase) -> Round:
        i = self.asked[name] = self.asked.get(name, -1) + 1
        found = d(name, i)
        cases = (CaseRound("a", found, 1e6, 2e5), CaseRound("b", 3 * found, 1e6, 4e6))
        return Round(phase, found, cases, sentinel_ns=700.0)


class FakeArms:
    def variant(self, candidate: Candidate, number: int) -> RunnerSpec:
        assert candidate is START
        return RunnerSpec(("runner",), f"pad {number}")


def calibrator(d: Callable[[str, int], float] | Failure, told: list[Event] | None = None) -> Calibrator:
    emit = told.append if told is not None else lambda event: None
    return Calibrator(FakeTrial(d), FakeArms(), MACHINE, emit)  # type: ignore[arg-type]


def noise(name: str, i: int) -> float:
    return NOISE[i]


def test_sigma_and_offset_are_of_the_same_kernel_in_both_arms() -> None:
    found = calibrator(lambda name, i: NOISE[i] + 0.001 if name == "start.so" else 0.0).run(START, SPEC, TIMED)  # type: ignore[arg-type]
    assert found.machine == "here"
    assert found.sigma == pytest.approx(calibrate.CONFIDENCE * sample_sd(NOISE))
    assert found.offset == pytest.approx(0.001)
    assert found.sigma_of("a") == pytest.approx(found.sigma)
    assert found.sigma_of("b") == pytest.approx(3 * found.sigma)
    assert (found.rounds, found.layouts, found.sentinel_ns) == (calibrate.ROUNDS, len(calibrate.PADS), 700.0)
    assert found.block_ms == pytest.approx((2.0 + 4.0) / 2)


def test_no_clock_is_believed_to_be_better_than_the_floor() -> None:
    found = calibrator(lambda name, i: 0.0).run(START, SPEC, TIMED)  # type: ignore[arg-type]
    assert found.sigma == found.sigma_of("a") == calibrate.SIGMA_FLOOR
    assert (found.offset, found.layout) == (0.0, 0.0)
    assert found.margin == 0.003


def test_layout_is_the_spread_between_builds_beyond_their_noise() -> None:
    places = {f"pad {pad}": 0.02 * (-1) ** i for i, pad in enumerate(calibrate.PADS)}
    found = calibrator(lambda name, i: places.get(name, NOISE[i])).run(START, SPEC, TIMED)  # type: ignore[arg-type]
    assert found.layout == pytest.approx(math.sqrt(0.02**2 - calibrate.MEDIAN_OF_THREE * found.sigma**2))
    assert found.margin == pytest.approx(3.1 * found.layout)
    quiet = calibrator(lambda name, i: NOISE[i] / 3 if name in places else NOISE[i]).run(START, SPEC, TIMED)  # type: ignore[arg-type]
    assert quiet.layout == 0.0


def test_a_kernel_that_fails_while_calibrating() -> None:
    with pytest.raises(MachineError, match="calibration failed: SIGSEGV"):
        calibrator(Failure(Reason.CRASH, "SIGSEGV")).run(START, SPEC, TIMED)  # type: ignore[arg-type]


def test_a_later_look_replaces_a_calibration_only_when_the_noise_has_clearly_grown() -> None:
    before = calibrator(noise).run(START, SPEC, TIMED)  # type: ignore[arg-type]
    told: list[Event] = []
    assert calibrator(lambda name, i: NOISE[i] * 1.5, told).again(before, SPEC, TIMED) is before  # type: ignore[arg-type]
    assert told == []
    found = calibrator(lambda name, i: NOISE[i] * 5, told).again(before, SPEC, TIMED)  # type: ignore[arg-type]
    assert found.sigma == pytest.approx(5 * sample_sd(NOISE[: calibrate.AGAIN]))
    assert (found.layout, found.offset) == (before.layout, before.offset)
    assert "noisier" in told[0].text


def test_builds_that_differ_in_layout_only_are_files_of_their_own(tmp_path: Path, walls: Walls, reachable: Path) -> None:
    """Names of trees are long and alike at the beginning: the builds must not overwrite one another."""
    arms = Arms(tasks.write(tmp_path), walls, reachable)
    arms.dtypes = {"x": "float32", "out": "float32"}
    start = tasks.candidate(tasks.looping(3))
    specs = [arms.spec(start), *(arms.variant(start, pad) for pad in (1, 2))]
    assert len({s.artifact for s in specs}) == 3
    assert len({Path(s.artifact).read_bytes() for s in specs}) == 3
    assert arms.spec(start) == specs[0]
    assert isinstance(arms.build(start, arms.dtypes), Built)
