"""The clock `calls`: one round is a fresh pair of processes, timed window by window by the judge.

A window is: contents written, t0, the runner is continued, calls on sets never used twice, done, stopped and confirmed, t1.
Windows come in pairs AB and BA, whose log-ratios are averaged; a round's D is the median over pairs. After each pair of
windows all outputs of both arms are compared. Must not know verdict rules, git or the ledger.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from statistics import median

from msgspec import Struct

from keepfast.device import cpu, lease
from keepfast.judge.channel import Call, Failure, Runner, RunnerSpec
from keepfast.judge.compare import Budget
from keepfast.judge.contents import Library, Sets
from keepfast.judge.ladder import composite
from keepfast.judge.sets import Draw
from keepfast.judge.table import call_table, described
from keepfast.model import CaseRound, Phase, Reason, Round, Task
from keepfast.walls.base import Walls

FOOTPRINT = 32 << 20  # bytes of all sets of a case together
WINDOW_MS = 3.0  # a window is at least this long where the footprint allows
PAIRS = 24  # pairs of windows a round: AB and BA each, so 48 windows an arm
TINY_SETS = 256  # and not more sets than this, for cases of nanoseconds
STEAL_SHARE = 0.02
DISTURBED_SHARE = 0.25  # of the windows: more, and the round is measured again
HOPELESS_SHARE = 0.5  # more than this is never used
OWN_WAITS = 0.75  # of the subject's windows, while the opponent's are quiet: then it is the subject that waits, and that is its time
ODD_SETS = 4  # of a case and round that go to the reference, drawn among all that differ


Pair = tuple[Runner, Runner]  # subject, opponent
Drawn = list[tuple[Draw, object]]  # what was given, and the subject's output region (np.ndarray)


class Timed(Struct, frozen=True):
    """A case ready to be timed: drawn contents, the number of sets, and what two right answers may differ by."""

    bank: tuple[Draw, ...]
    count: int
    budgets: tuple[tuple[str, Budget], ...]
    call_ns: float  # what one call took when last seen, for time limits

    @property
    def name(self) -> str:
        return self.bank[0].case.name


class Odd(Struct, frozen=True):
    """A timed set in which the arms differ, for the reference to say who is wrong."""

    draw: Draw
    got: object  # np.ndarray: the subject's output region
    result: str
    canary: bool


class Timing(Struct, frozen=True):
    """A round that went through, one timed set drawn for the reference, and the sets that differ."""

    round: Round
    drawn: tuple[tuple[Draw, object], ...]
    odd: tuple[Odd, ...]


class Disturbed(Struct, frozen=True):
    """The machine was not fit during this round. `usable`: what was measured may still count, at the price of its noise.
    `odd`: sets that differ are so whatever the noise."""

    detail: str
    usable: Timing | None = None
    odd: tuple[Odd, ...] = ()


def sets_for(draw: Draw, call_ns: float) -> int:
    """How many sets make a window long enough, within the footprint."""
    size = draw.layout.in_bytes + 2 * draw.layout.out_bytes
    return max(1, min(math.ceil(WINDOW_MS * 1e6 / max(call_ns, 1.0)), FOOTPRINT // size))


class Clock:
    def __init__(self, walls: Walls, library: Library, task: Task, rng: Random) -> None:
        self.walls, self.library, self.task, self.rng = walls, library, task, rng
        self.cores = cpu.last_cores(task.threads)
        available = os.sched_getaffinity(0)
        self.own_cores = available - set(self.cores) or available

    def round(self, phase: Phase, arms: tuple[RunnerSpec, RunnerSpec], cases: tuple[Timed, ...]) -> Timing | Failure | Disturbed:
        """Time subject (arms[0]) against opponent (arms[1]) once, in fresh processes, while no other keepfast times on these cores."""
        with lease.held(self.cores):
            return self._round(phase, arms, cases)

    def _round(self, phase: Phase, arms: tuple[RunnerSpec, RunnerSpec], cases: tuple[Timed, ...]) -> Timing | Failure | Disturbed:
        began, steal, sentinel = time.monotonic(), _steal_ticks(), self.sentinel()
        drawn: Drawn = []
        odd: list[Odd] = []
        results, disturbed = [], 0.0
        with self._apart(), self._runners(arms) as runners:
            if isinstance(runners, Failure):
                return runners
            for case in cases:
                found = self._case(case, runners, differing := list[Odd](), drawn)
                odd += differing
                if isinstance(found, Failure):
                    return found
                results.append(found[0])
                disturbed = max(disturbed, found[1])
        seconds = time.monotonic() - began
        stolen = (_steal_ticks() - steal) / (seconds * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1))
        if stolen > STEAL_SHARE:
            return Disturbed(f"the hypervisor took {stolen:.0%} of the CPU time in this round", odd=tuple(odd))
        made = Round(phase, self._composite(results), tuple(results), sentinel, seconds)
        timing = Timing(made, tuple(drawn), tuple(odd))
        if disturbed > DISTURBED_SHARE:
            said = f"another process took the core in {disturbed:.0%} of the windows"
            return Disturbed(said, timing if disturbed <= HOPELESS_SHARE else None, tuple(odd))
        return timing

    def sentinel(self) -> float:
        """Time of a fixed piece of arithmetic on the runner's core, in ns."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores[:1])
        try:
            return self.library.sentinel_ns()
        finally:
            os.sched_setaffinity(0, before)

    def _composite(self, results: list[CaseRound]) -> float:
        weights = dict(zip((c.name for c in self.task.timed), self.task.weights(), strict=True))
        return composite(weights, [(r.case, r.d) for r in results])

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """The judge keeps off the runner's cores where there are others."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.own_cores)
        collecting = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)
            if collecting:
                gc.enable()

    @contextmanager
    def _runners(self, arms: tuple[RunnerSpec, RunnerSpec]) -> Iterator[Pair | Failure]:
        with ExitStack() as stack:
            order = [0, 1]
            self.rng.shuffle(order)
            started = {i: stack.enter_context(Runner.start(self.walls, arms[i])) for i in order}
            failures = [failure for i in order if (failure := started[i].load(10.0)) is not None]
            yield failures[0] if failures else (started[0], started[1])

    def _case(self, case: Timed, runners: Pair, odd: list[Odd], drawn: Drawn) -> tuple[CaseRound, float] | Failure:
        sets = Sets(self.library, self.task, case.bank, case.count)
        try:
            for arm, runner in enumerate(runners):
                outputs = sets.outputs[arm]
                regions = runner.map(sets.inputs.fd, sets.inputs.size, False), runner.map(outputs.fd, outputs.size, True)
                with call_table(case.bank, case.count, regions) as table:
                    runner.table(table, described(self.task.signature, sets.layout))
            return Windows(case, sets, runners, self.rng).run(odd, drawn)
        finally:
            sets.close()


class Windows:
    """The windows of one case in one round."""

    def __init__(self, case: Timed, sets: Sets, runners: Pair, rng: Random) -> None:
        self.case, self.sets, self.runners, self.rng = case, sets, runners, rng
        self.budgets = dict(case.budgets)
        self.timeout_s = max(1.0, 50e-9 * case.call_ns * case.count)
        self.disturbed, self.differing = [0, 0], 0

    def run(self, odd: list[Odd], drawn: Drawn) -> tuple[CaseRound, float] | Failure:
        """The case in this round, and the share of windows in which somebody else had the core."""
        pairs: list[float] = []
        times: tuple[list[int], list[int]] = ([], [])
        keep = (self.rng.randrange(PAIRS), self.rng.randrange(2), self.rng.randrange(self.case.count))
        for k in range(-1, PAIRS):  # the first pair warms both processes and is not counted
            both = []
            for half, order in enumerate(self._orders()):
                window = self._window(order, odd)
                if isinstance(window, Failure):
                    return window
                both.append(math.log(window[0] / window[1]))
                if k >= 0:
                    times[0].append(window[0])
                    times[1].append(window[1])
                if (k, half) == keep[:2]:
                    drawn.append(self.sets.drawn(keep[2]))
            if k >= 0:
                pairs.append(sum(both) / 2)
            else:
                self.disturbed = [0, 0]
        if failure := self.runners[0].still():
            return failure
        per_call = [median(t) / self.case.count for t in times]
        return CaseRound(self.case.name, median(pairs), per_call[0], per_call[1], tuple(pairs)), self._disturbed_share()

    def _disturbed_share(self) -> float:
        subject, opponent = (count / (2 * PAIRS) for count in self.disturbed)
        waits = subject > OWN_WAITS and opponent <= DISTURBED_SHARE
        return opponent if waits else (subject + opponent) / 2

    def _orders(self) -> list[tuple[int, int]]:
        return [(0, 1), (1, 0)] if self.rng.random() < 0.5 else [(1, 0), (0, 1)]

    def _window(self, order: tuple[int, int], odd: list[Odd]) -> tuple[int, int] | Failure:
        self.sets.refresh(self.rng)
        ns = [0, 0]
        for arm in order:
            found = self.runners[arm].call(0, self.case.count, self.timeout_s)
            if isinstance(found, Failure):
                return found if arm == 0 else Failure(Reason.MACHINE, f"the opponent failed while timed: {found.detail}")
            ns[arm] = found.ns
            self.disturbed[arm] += _disturbed(found)
        self._look(odd)
        return ns[0], ns[1]

    def _look(self, odd: list[Odd]) -> None:
        """Which sets differ. A few are kept, each with the same chance: harmless ones in early windows hide nothing later."""
        for found in self.sets.differing(self.budgets):
            if odd and odd[0].canary:
                return  # that is enough
            self.differing += 1
            place = 0 if found.canary else len(odd) if len(odd) < ODD_SETS else self.rng.randrange(self.differing)
            if place < ODD_SETS:
                odd[place : place + 1] = [Odd(*self.sets.drawn(found.index), found.result, found.canary)]


def _disturbed(call: Call) -> bool:
    """Less CPU time than wall time by more than stopping and waking cost: somebody else ran on this core."""
    return call.ns - call.cpu_ns > 300_000 + 0.05 * call.ns


def _steal_ticks() -> int:
    with open("/proc/stat") as stat:
        fields = stat.readline().split()
    return int(fields[8]) if len(fields) > 8 else 0
