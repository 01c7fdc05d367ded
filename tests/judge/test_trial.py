"""The rung `time`: retries, verdicts of the reference on timed sets, physics and the decision, over a clock from a script."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.judge import sets, trial
from keepfast.judge.arms import Arms
from keepfast.judge.channel import Failure, RunnerSpec
from keepfast.judge.clock import Clock, Disturbed, Odd, Timed, Timing
from keepfast.judge.compare import Budget
from keepfast.judge.contents import Library
from keepfast.judge.decide import Decision, Measure
from keepfast.judge.oracle_records import Job
from keepfast.judge.reference import Reference, Results
from keepfast.judge.sets import Draw, view
from keepfast.judge.trial import Pair, Suspect, Trial
from keepfast.model import Case, CaseRound, Limit, Machine, Phase, Reason, Round
from keepfast.walls.base import Walls
from tests.judge import tasks
from tests.judge.made_rounds import calibrated
from tests.judge.tasks import kernel, softmax_task

MACHINE = Machine("cpu", 2, "6", "gcc", "walls", ceilings=(("copy_1MB_GBps", 10.0),), hash="m")
MAIN, TAIL = Case("main", (("n", 64),)), Case("tail", (("n", 64),), use="correct")
TASK = softmax_task(axes=("n",), cases=(MAIN, TAIL), limit=Limit(bytes="8*n"))
SPECS = (RunnerSpec(("subject",), "a"), RunnerSpec(("opponent",), "b"))
Answer = Timing | Failure | Disturbed


def drawn(case: Case = MAIN, seed: int = 0) -> Draw:
    values = {"x": np.random.default_rng(seed).standard_normal(64, dtype=np.float32)}
    layout, words = sets.plan(TASK.signature, case, values, {"out": values["x"]})
    return Draw(case, layout, words, *sets.images(TASK.signature, layout, values))


def written(draw: Draw, error: float = 0.0) -> np.ndarray:
    """An output region that holds x * x, wrong by `error` in one place."""
    image: np.ndarray = draw.out_image.copy()
    out = view(image, draw.layout.slot("out"))
    out[...] = view(draw.in_image, draw.layout.slot("x")) ** 2
    out[5] += error
    return image


class SquareReference:
    """The reference worker's answers, made here."""

    task, has_compare, said = TASK, False, ""

    def __init__(self) -> None:
        self.asked = 0

    def results(self, draws: list[Draw]) -> list[Results]:
        self.asked += len(draws)
        xs = [view(d.in_image, d.layout.slot("x")) for d in draws]
        return [Results((x * x,), (x.astype(np.float64) ** 2,)) for x in xs]

    def compare(self, draw: Draw, got: np.ndarray) -> str:
        return self.said


def timing(phase: Phase, d: float, cases: tuple[Timed, ...], opponent_ns: float = 1e6) -> Timing:
    rounds = tuple(CaseRound(t.name, d, opponent_ns * math.exp(d), opponent_ns) for t in cases)
    draw = drawn()
    return Timing(Round(phase, d, rounds), ((draw, written(draw)),), ())


class ScriptedClock:
    """Answers in order; the last one for ever."""

    def __init__(self, *answers: Answer | Callable[[Phase, tuple[Timed, ...]], Answer]) -> None:
        self.answers, self.asked = answers, list[tuple[Phase, tuple[str, ...]]]()

    def round(self, phase: Phase, arms: tuple[RunnerSpec, RunnerSpec], cases: tuple[Timed, ...]) -> Answer:
        assert arms == SPECS
        found = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append((phase, tuple(t.name for t in cases)))
        return found(phase, cases) if callable(found) else found


def always(d: float, opponent_ns: float = 1e6) -> Callable[[Phase, tuple[Timed, ...]], Answer]:
    return lambda phase, cases: timing(phase, d, cases, opponent_ns)


def timed(case: Case) -> Timed:
    return Timed((drawn(case),), 4, (("out", Budget(1e-6, 1e-5)),), 1e6)


PAIR = Pair(*SPECS, "experiment 1", (timed(MAIN),), (timed(TAIL),))
TEST = Measure(Phase.TEST, 2)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses that would have been made."""
    found: list[float] = []
    monkeypatch.setattr(trial.time, "sleep", found.append)
    return found


def on(clock: ScriptedClock, reference: SquareReference | None = None) -> Trial:
    return Trial(clock, reference or SquareReference(), MACHINE, lambda phase, made: None)  # type: ignore[arg-type]


def measured(*answers: Answer | Callable[[Phase, tuple[Timed, ...]], Answer]) -> list[Round] | Failure:
    return on(ScriptedClock(*answers)).measure(PAIR, TEST)


# --------------------------------------------------------------------------------------------- a machine that is not fit


def test_a_disturbed_round_is_measured_again_after_a_pause(slept: list[float]) -> None:
    found = measured(Disturbed("busy"), Disturbed("busy"), always(-0.1))
    assert isinstance(found, list)
    assert [r.d for r in found] == [-0.1, -0.1]
    assert slept == list(trial.PAUSES_S[:2])


def test_a_machine_that_stays_busy_is_void_and_says_why(slept: list[float]) -> None:
    with pytest.raises(MachineError, match="7 rounds in a row were disturbed: another process took the core") as error:
        measured(Disturbed("another process took the core"))
    assert error.value.exit_code == 5
    assert error.value.next_step
    assert slept == list(trial.PAUSES_S)


def test_the_best_of_bad_rounds_is_taken_when_it_is_usable(slept: list[float]) -> None:
    usable = Disturbed("busy", timing(Phase.TEST, 0.25, (timed(MAIN),)))
    found = on(ScriptedClock(Disturbed("busy"), usable, Disturbed("busy"))).measure(PAIR, Measure(Phase.TEST, 1))
    assert isinstance(found, list)
    assert [r.d for r in found] == [0.25]
    assert len(slept) == len(trial.PAUSES_S)


def test_an_opponent_that_fails_is_the_machines_matter(slept: list[float]) -> None:
    failed = Failure(Reason.MACHINE, "the opponent failed while timed")
    found = measured(failed, always(0.0))
    assert isinstance(found, list)
    with pytest.raises(MachineError, match="the opponent failed"):
        measured(failed)


def test_a_subject_that_fails_is_not_asked_twice(slept: list[float]) -> None:
    crash = Failure(Reason.CRASH, "SIGSEGV")
    clock = ScriptedClock(crash)
    assert on(clock).measure(PAIR, TEST) == crash
    assert len(clock.asked) == 1
    assert slept == []


# --------------------------------------------------------------------------------------------- wrong while timed


def with_sets(*, odd: tuple[Odd, ...] = (), drawn: tuple[tuple[Draw, object], ...] = ()) -> Timing:
    return replace(timing(Phase.TEST, 0.0, (timed(MAIN),)), odd=odd, drawn=drawn)


def test_a_set_that_differs_and_is_wrong_is_a_trick() -> None:
    draw = drawn(seed=3)
    found = measured(with_sets(odd=(Odd(draw, written(draw, 1.0), "out", False),)))
    assert isinstance(found, Failure)
    assert (found.reason, found.cheat) == (Reason.WRONG, True)
    assert found.detail.startswith("case main, while timed: out[5]: got ")


def test_a_set_that_differs_and_is_right_is_none() -> None:
    draw = drawn(seed=3)
    assert isinstance(measured(with_sets(odd=(Odd(draw, written(draw), "out", False),))), list)


def test_a_set_drawn_by_the_judge_is_verified_when_the_phase_is_over() -> None:
    draw, reference = drawn(seed=4), SquareReference()
    clock = ScriptedClock(with_sets(drawn=((draw, written(draw)),)), with_sets(drawn=((draw, written(draw, 1e-2)),)))
    found = on(clock, reference).measure(PAIR, TEST)
    assert isinstance(found, Failure)
    assert (found.reason, found.cheat) == (Reason.WRONG, True)
    assert len(clock.asked) == 2
    assert reference.asked == 2


def test_a_touched_canary_needs_no_reference() -> None:
    draw, reference = drawn(), SquareReference()
    clock = ScriptedClock(with_sets(odd=(Odd(draw, written(draw), "", True),)))
    found = on(clock, reference).measure(PAIR, TEST)
    assert found == Failure(Reason.OUT_OF_BOUNDS, "case main: wrote beside its outputs while timed", True)
    assert reference.asked == 0


@pytest.mark.parametrize("said", ["", "too far off"])
def test_the_tasks_own_compare_may_excuse_a_set(said: str) -> None:
    draw, reference = drawn(), SquareReference()
    reference.has_compare, reference.said = True, said
    clock = ScriptedClock(with_sets(odd=(Odd(draw, written(draw, 1.0), "out", False),)))
    assert isinstance(on(clock, reference).measure(PAIR, TEST), Failure if said else list)


# --------------------------------------------------------------------------------------------- which cases, and how it ends


def test_cases_for_correctness_are_timed_once_in_confirm(slept: list[float]) -> None:
    clock = ScriptedClock(always(0.0))
    made = on(clock)
    made.measure(PAIR, Measure(Phase.CONFIRM, 3))
    made.measure(PAIR, Measure(Phase.CASES, 2, ("tail",)))
    both, one = ("main", "tail"), ("main",)
    assert [cases for _, cases in clock.asked] == [both, one, one, ("tail",), ("tail",)]


def run(answer: Callable[[Phase, tuple[Timed, ...]], Answer]) -> trial.Outcome:
    return on(ScriptedClock(answer)).run(PAIR, calibrated(sigma=0.001), ())


def test_no_gain_ends_after_the_first_look() -> None:
    found = run(always(0.0))
    assert isinstance(found.end, Decision)
    assert found.end.reason is Reason.NO_GAIN
    assert [r.phase for r in found.rounds] == [Phase.SCREEN] + [Phase.TEST] * 4


def test_a_gain_is_confirmed_and_its_limit_is_said() -> None:
    found = run(always(-0.5))
    assert isinstance(found.end, Decision)
    assert found.end.reason is Reason.FASTER
    assert found.end.gain is not None
    assert found.end.gain.opponent == "experiment 1"
    assert found.end.gain.d == pytest.approx(-0.5)
    assert [(c.case, c.limit_ns) for c in found.cases] == [("main", 51.2), ("tail", 51.2)]


def test_a_time_below_what_the_machine_can_do_is_suspect() -> None:
    found = run(always(-0.5, opponent_ns=60.0))
    assert isinstance(found.end, Suspect)
    assert found.end.reason is Reason.TOO_FAST
    assert "allow no less than 0.1 us" in found.end.detail
    assert len(found.rounds) == 1


def test_progress_is_told_round_by_round() -> None:
    told: list[tuple[Phase, float]] = []
    made = Trial(ScriptedClock(always(-0.1)), SquareReference(), MACHINE, lambda phase, r: told.append((phase, r.d)))  # type: ignore[arg-type]
    made.measure(PAIR, TEST)
    assert told == [(Phase.TEST, -0.1)] * 2


# --------------------------------------------------------------------------------------------- a real kernel


@pytest.mark.usefixtures("calm")
def test_right_in_the_check_and_wrong_in_the_clock(tmp_path: Path, reachable: Path, walls: Walls, library: Library) -> None:
    """A kernel that counts its calls, and stops working when it believes that it is being timed."""
    task = tasks.write(tmp_path)
    reference = Reference(task)
    draws = reference.draws([Job("make", task.cases[0], (i,)) for i in range(3)])
    arms = Arms(task, walls, reachable)
    arms.dtypes = {s.name: s.dtype for s in draws[0].layout.slots}
    body = "    int64_t end = ++calls > 30 ? n / 2 : n;\n    for (int64_t i = 0; i < end; i++)\n        out[i] = x[i] * x[i] + 1.0f;"
    lazy, honest = (arms.spec(tasks.candidate(code)) for code in (kernel(body, "static int calls;"), tasks.RIGHT))
    pair = Pair(lazy, honest, "start", (Timed(tuple(draws), 8, (("out", Budget(1e-5, 1e-4)),), 1e5),))
    made = Trial(Clock(walls, library, task, Random(4)), reference, MACHINE, lambda phase, r: None)
    found = made.measure(pair, Measure(Phase.SCREEN, 1))
    assert isinstance(found, Failure)
    assert (found.reason, found.cheat) == (Reason.WRONG, True)
    assert "while timed: out[" in found.detail
