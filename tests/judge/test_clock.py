"""The clock: windows over runners that answer from a script, then rounds of real kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from keepfast.judge import clock, sets
from keepfast.judge.arms import Arms
from keepfast.judge.channel import Call, Failure
from keepfast.judge.clock import Clock, Disturbed, Odd, Timed, Timing, Windows, sets_for
from keepfast.judge.compare import Budget
from keepfast.judge.contents import Library, Sets
from keepfast.judge.oracle_records import Job
from keepfast.judge.reference import Reference
from keepfast.judge.sets import Draw, view
from keepfast.model import Case, Phase, Reason
from keepfast.walls.base import Walls
from tests.judge import tasks
from tests.judge.tasks import softmax_task

N, COUNT = 256, 6
CASE = Case("main", (("n", N),))
BUDGETS = (("out", Budget(1e-6, 1e-5)),)


class Scripted:
    """A runner that answers at once: `takes(i)` is the time of its i-th call in ns, `answer(i, x)` what it writes for one set."""

    def __init__(self, arm: int, takes: Callable[[int], float] = lambda i: 1e6) -> None:
        self.arm, self.takes = arm, takes
        self.answer: Callable[[int, np.ndarray], np.ndarray] = lambda i, x: x * x
        self.sleeps = 0.0
        self.fails: Failure | None = None
        self.after: Failure | None = None
        self.sets: Sets | None = None
        self.calls = 0

    def call(self, first: int, count: int, timeout_s: float) -> Call | Failure:
        assert self.sets is not None
        assert (first, count) == (0, COUNT)
        if self.fails:
            return self.fails
        layout = self.sets.layout
        for i in range(count):
            x = view(self.sets.inputs.array, layout.slot("x"), i * layout.in_bytes)
            out = view(self.sets.outputs[self.arm].array, layout.slot("out"), i * layout.out_bytes)
            assert np.isnan(out).all()
            out[...] = self.answer(self.calls, x)
        self.calls += 1
        ns = self.takes(self.calls)
        return Call(int(ns), int(ns * (1 - self.sleeps)))

    def still(self) -> Failure | None:
        return self.after


@pytest.fixture
def pool(library: Library) -> Iterator[Sets]:
    task = softmax_task(axes=("n",), cases=(CASE,))
    draws = []
    for seed in range(3):
        values = {"x": np.random.default_rng(seed).standard_normal(N, dtype=np.float32)}
        layout, words = sets.plan(task.signature, CASE, values, {"out": values["x"]})
        draws.append(Draw(CASE, layout, words, *sets.images(task.signature, layout, values)))
    found = Sets(library, task, tuple(draws), COUNT)
    yield found
    found.close()


def windows(
    pool: Sets, subject: Scripted, opponent: Scripted, seed: int = 1
) -> tuple[Windows, list[Odd], list[tuple[Draw, object]], object]:
    subject.sets = opponent.sets = pool
    made = Windows(Timed(pool.bank, COUNT, BUDGETS, 1e5), pool, (subject, opponent), Random(seed))  # type: ignore[arg-type]
    odd: list[Odd] = []
    drawn: list[tuple[Draw, object]] = []
    return made, odd, drawn, made.run(odd, drawn)


def passed(found: object) -> tuple[clock.CaseRound, float]:
    assert isinstance(found, tuple), found
    return found


def test_the_log_ratio_and_the_times_of_a_call(pool: Sets) -> None:
    _, odd, drawn, found = windows(pool, Scripted(0, lambda i: 2e6), Scripted(1, lambda i: 1e6))
    made, disturbed = passed(found)
    assert made.case == "main"
    assert made.d == pytest.approx(math.log(2))
    assert made.blocks == pytest.approx([math.log(2)] * clock.PAIRS)
    assert (made.subject_ns, made.opponent_ns) == (2e6 / COUNT, 1e6 / COUNT)
    assert (odd, disturbed) == ([], 0.0)
    ((draw, got),) = drawn
    x = view(draw.in_image, draw.layout.slot("x"))
    assert np.array_equal(view(got, draw.layout.slot("out")), x * x)  # type: ignore[arg-type]


def test_a_drift_of_the_machine_cancels_between_ab_and_ba(pool: Sets) -> None:
    ticks = iter(range(10**6))
    arms = [Scripted(arm, lambda i: 1e6 * 1.01 ** next(ticks)) for arm in (0, 1)]
    made, _ = passed(windows(pool, *arms)[3])
    assert made.blocks == pytest.approx([0.0] * clock.PAIRS, abs=1e-6)


def test_the_first_pair_is_warming_up_and_single_outliers_do_not_count(pool: Sets) -> None:
    subject = Scripted(0, lambda i: 1e8 if i <= 2 or i % 9 == 0 else 1e6)
    made, _ = passed(windows(pool, subject, Scripted(1))[3])
    assert subject.calls == 2 * (clock.PAIRS + 1)
    assert made.d == pytest.approx(0.0)
    assert made.subject_ns == 1e6 / COUNT


def test_both_arms_go_first_equally_often(pool: Sets) -> None:
    order: list[int] = []

    def noting(arm: int) -> Callable[[int], float]:
        return lambda i: (order.append(arm), 1e6)[1]

    windows(pool, Scripted(0, noting(0)), Scripted(1, noting(1)))
    firsts = order[::2]
    assert sum(firsts) == len(firsts) // 2
    assert [a + b for a, b in zip(firsts[::2], firsts[1::2], strict=True)] == [1] * (clock.PAIRS + 1)


# --------------------------------------------------------------------------------------------- wrong while timed


def test_sets_in_which_the_arms_differ_are_handed_on(pool: Sets) -> None:
    subject = Scripted(0)
    subject.answer = lambda i, x: x * x + (i > 20)
    _, odd, _, found = windows(pool, subject, Scripted(1))
    passed(found)
    assert len(odd) == clock.ODD_SETS
    for one in odd:
        assert (one.result, one.canary) == ("out", False)
        x = view(one.draw.in_image, one.draw.layout.slot("x"))
        assert np.array_equal(view(one.got, one.draw.layout.slot("out")), x * x + 1)  # type: ignore[arg-type]


def test_harmless_differences_at_first_do_not_hide_later_ones(pool: Sets) -> None:
    """A kernel that differs a little (and may) in early windows has not used up what is looked at."""
    caught = 0
    for seed in range(20):
        subject = Scripted(0)
        subject.answer = lambda i, x: x * x + (1.0 if i > 8 else 2e-5)
        odd = windows(pool, subject, Scripted(1), seed)[1]
        caught += any((view(o.got, o.draw.layout.slot("out")) > 1).all() for o in odd)  # type: ignore[arg-type]
    assert caught == 20


def test_a_touched_canary_is_handed_on_whatever_else_differs(pool: Sets) -> None:
    subject = Scripted(0)

    def spilling(i: int, x: np.ndarray) -> np.ndarray:
        if i == 9:
            pool.outputs[0].array[pool.layout.out_bytes - 1] = 0
        return x * x + 1

    subject.answer = spilling
    odd = windows(pool, subject, Scripted(1))[1]
    assert sum(o.canary for o in odd) == 1


def test_a_failure_of_the_subject_is_its_own_and_one_of_the_opponent_is_not(pool: Sets) -> None:
    crash = Failure(Reason.CRASH, "SIGSEGV")
    broken = Scripted(0)
    broken.fails = crash
    assert windows(pool, broken, Scripted(1))[3] == crash
    broken = Scripted(1)
    broken.fails = crash
    found = windows(pool, Scripted(0), broken)[3]
    assert found == Failure(Reason.MACHINE, "the opponent failed while timed: SIGSEGV")
    late = Scripted(0)
    late.after = Failure(Reason.PROTOCOL, "woke up", True)
    assert windows(pool, late, Scripted(1))[3] == late.after


# --------------------------------------------------------------------------------------------- who disturbs


@pytest.mark.parametrize(("subject", "opponent", "share"), [(0.0, 0.0, 0.0), (0.9, 0.9, 1.0), (0.0, 0.9, 0.5), (0.9, 0.0, 0.0)])
def test_a_subject_that_waits_by_itself_is_slow_and_the_machine_is_not_to_blame(
    pool: Sets, subject: float, opponent: float, share: float
) -> None:
    arms = Scripted(0), Scripted(1)
    arms[0].sleeps, arms[1].sleeps = subject, opponent
    _, disturbed = passed(windows(pool, *arms)[3])
    assert disturbed == share


def test_sets_fill_a_window_within_the_footprint(pool: Sets) -> None:
    draw = pool.bank[0]
    assert sets_for(draw, 3e6) == 1
    assert sets_for(draw, 1e6) == 3
    assert sets_for(draw, 0.0) == clock.FOOTPRINT // (draw.layout.in_bytes + 2 * draw.layout.out_bytes)
    huge = replace(draw, layout=replace(draw.layout, in_bytes=1 << 30))
    assert sets_for(huge, 1.0) == 1


# --------------------------------------------------------------------------------------------- real kernels


class Real:
    """The square task on this machine."""

    def __init__(self, folder: Path, builds: Path, walls: Walls, library: Library) -> None:
        self.task = tasks.write(folder)
        draws = Reference(self.task).draws([Job("make", self.task.cases[0], (i,)) for i in range(3)])
        self.arms = Arms(self.task, walls, builds)
        self.arms.dtypes = {s.name: s.dtype for s in draws[0].layout.slots}
        self.timed = Timed(tuple(draws), 8, (("out", Budget(1e-5, 1e-4)),), 1e5)
        self.clock = Clock(walls, library, self.task, Random(3))

    def round(self, subject: str, opponent: str) -> Timing | Failure | Disturbed:
        specs = tuple(self.arms.spec(tasks.candidate(code)) for code in (subject, opponent))
        return self.clock.round(Phase.TEST, (specs[0], specs[1]), (self.timed,))


@pytest.fixture
def real(tmp_path: Path, reachable: Path, walls: Walls, library: Library) -> Real:
    return Real(tmp_path, reachable, walls, library)


def test_a_kernel_against_itself(real: Real) -> None:
    found = real.round(tasks.looping(60), tasks.looping(60))
    if isinstance(found, Disturbed):
        assert "another process" in found.detail or "hypervisor" in found.detail
        return
    assert isinstance(found, Timing), found
    assert abs(found.round.d) < 0.3
    assert found.odd == ()
    assert len(found.drawn) == 1
    assert found.round.sentinel_ns > 0
    assert len(found.round.cases[0].blocks) == clock.PAIRS


@pytest.mark.usefixtures("calm")
def test_a_slower_opponent_shows(real: Real) -> None:
    found = real.round(tasks.looping(10), tasks.looping(400))  # so much that it shows through whatever else runs here
    assert isinstance(found, Timing), found
    assert found.round.d < -math.log(2)
    assert found.round.cases[0].opponent_ns > 2 * found.round.cases[0].subject_ns


@pytest.mark.usefixtures("calm")
def test_an_arm_that_does_not_load_ends_the_round(real: Real) -> None:
    exits = tasks.RIGHT + "\n#include <stdlib.h>\n__attribute__((constructor)) static void early(void) { exit(4); }\n"
    found = real.round(exits, tasks.RIGHT)
    assert isinstance(found, Failure)
    assert found.reason is Reason.CRASH


@pytest.mark.usefixtures("calm")
def test_a_round_leaves_cores_and_descriptors_as_they_were(real: Real) -> None:
    import os

    real.round(tasks.RIGHT, tasks.RIGHT)
    cores, files = os.sched_getaffinity(0), len(os.listdir("/proc/self/fd"))
    real.round(tasks.RIGHT, tasks.RIGHT)
    assert os.sched_getaffinity(0) == cores
    assert len(os.listdir("/proc/self/fd")) == files
