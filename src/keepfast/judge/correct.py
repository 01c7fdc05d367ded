"""The rung `correct`: one fresh process, every case, several draws, the same buffers with new contents each time.

Looks for wrong results, old answers, late writes, writes out of bounds and variation between launches. Everything is
compared on private copies, while the runner is stopped. Must not know git, the ledger or how a gain is decided.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from keepfast.device import lease
from keepfast.judge import compare
from keepfast.judge.channel import Failure, Runner, RunnerSpec
from keepfast.judge.compare import Budget, Mismatch
from keepfast.judge.contents import Buffer, Library, canaries, fresh_poison
from keepfast.judge.reference import Reference
from keepfast.judge.sets import Draw, view
from keepfast.judge.table import call_table, described
from keepfast.model import Fact, Reason, Task
from keepfast.walls.base import Walls

if TYPE_CHECKING:
    import numpy as np

LAUNCHES = 20  # launches on the same contents that must agree
LAUNCHES_S = 0.5  # but no longer than this a case
SETTLE_S = 0.004  # how long the process runs on after its last call, to catch late writes
LATE_LOOKS = 25  # so many times SETTLE_S, for a result that is not whole: 0.1 s
FIRST_CALL_S = 10.0
LOAD_S = 5.0  # constructors included; a baseline imports NumPy in it
WAKING_NS = 30_000  # about what continuing and stopping cost, taken off the time of a single call


class Right(Struct, frozen=True):
    """What the timed rounds need from here, a case each."""

    case: str
    call_ns: float
    budgets: tuple[tuple[str, Budget], ...]


class Correct(Struct, frozen=True):
    cases: tuple[Right, ...]
    facts: tuple[Fact, ...]

    def of(self, case: str) -> Right:
        return next(r for r in self.cases if r.case == case)


class Checker:
    """Runs one artifact over draws. `expected_ns` says how long the champion's calls take, for time limits."""

    def __init__(self, walls: Walls, library: Library, reference: Reference, rng: Random) -> None:
        self.walls, self.library, self.reference, self.rng = walls, library, reference, rng
        self.task: Task = reference.task

    def check(self, spec: RunnerSpec, draws: Sequence[Sequence[Draw]], expected_ns: dict[str, float]) -> Correct | Failure:
        """`draws`: a sequence of draws for each case."""
        found: list[Right] = []
        with lease.held(spec.cores), Runner.start(self.walls, spec) as runner:
            if failure := runner.load(LOAD_S):
                return failure
            for case in draws:
                result = OneCase(self, runner, case, expected_ns).run()
                if isinstance(result, Failure):
                    return result
                found.append(result)
        seeds = len(draws[0]) if draws else 0
        return Correct(tuple(found), (Fact("checked", f"{len(found)} cases x {seeds} draws, up to {LAUNCHES} launches each"),))


class OneCase:
    """One case in a runner: a single set of buffers that is written anew for every launch."""

    def __init__(self, checker: Checker, runner: Runner, draws: Sequence[Draw], expected_ns: dict[str, float]) -> None:
        self.checker, self.runner, self.draws = checker, runner, draws
        self.layout, self.task = draws[0].layout, checker.task
        self.case = draws[0].case
        known = expected_ns.get(self.case.name)
        self.timeout_s = FIRST_CALL_S if known is None else max(1.0, 50e-9 * known)
        self.length = compare.reduction_length(self.task, self.case)
        self.poison = 0

    def run(self) -> Right | Failure:
        self.inputs = Buffer("inputs", self.layout.in_bytes, sealed=True)
        self.outputs = Buffer("outputs", self.layout.out_bytes, sealed=False)
        try:
            return self._run()
        finally:
            self.inputs.close()
            self.outputs.close()

    def _run(self) -> Right | Failure:
        given, made = ([s.name for s in self.layout.slots if s.region == region] for region in ("in", "out"))
        regions = (
            self.runner.map(self.inputs.fd, self.inputs.size, False, _said(given)),
            self.runner.map(self.outputs.fd, self.outputs.size, True, _said(made)),
        )
        best, budgets = float("inf"), dict[str, Budget]()
        for i, draw in enumerate(self.draws):
            with call_table((draw,), 1, regions) as table:
                self.runner.table(table, described(self.task.signature, self.layout))
                ns = self._launch(draw)
                if isinstance(ns, Failure):
                    return ns
                image = self.outputs.array.copy()
                judged = self._results(draw, image, self.draws[:i])
                if isinstance(judged, Failure):
                    return judged
                budgets = {name: max((budgets.get(name, b), b), key=lambda x: x.rms) for name, b in judged.items()}
                best = min(best, ns)
                if i == len(self.draws) - 1:
                    again = self._again(draw, image, budgets, best)
                    if isinstance(again, Failure):
                        return again
                    best = min(best, again)
        return Right(self.case.name, best, tuple(budgets.items()))

    def _launch(self, draw: Draw) -> float | Failure:
        """New poison, new contents, one call; canaries checked. About the time of the call in ns."""
        self.poison = fresh_poison(self.checker.rng)
        self.checker.library.lib.kf_fill(self.outputs.address, self.outputs.size // 4, self.poison)
        self.inputs.array[: self.layout.in_bytes] = draw.in_image
        for arg in self.task.signature.written:
            slot = self.layout.slot(arg.name)
            self.outputs.array[slot.base : slot.base + slot.span] = draw.out_image[slot.base : slot.base + slot.span]
        done = self.runner.call(0, 1, self.timeout_s)
        if isinstance(done, Failure):
            return self._named(done)
        touched = canaries(self.checker.library, self.outputs, 0, self.layout, self.poison)
        if touched is not None:
            return self._named(Failure(Reason.OUT_OF_BOUNDS, f"wrote beside `{touched}`"))
        return max(float(done.ns) - WAKING_NS, 100.0)

    def _named(self, failure: Failure) -> Failure:
        return Failure(failure.reason, f"case {self.case.name}: {failure.detail}", failure.cheat)

    def _results(self, draw: Draw, image: np.ndarray, earlier: Sequence[Draw]) -> dict[str, Budget] | Failure:
        budgets: dict[str, Budget] = {}
        limits = (self.length, self.task.tolerance.scale)
        for name, working, exact in zip(self.task.signature.results, draw.working, draw.exact, strict=True):
            got = view(image, self.layout.slot(name))
            found = compare.judge(name, got, working, exact, limits)
            if isinstance(found, Mismatch):
                if self._own_compare(draw, image):
                    return self._wrong(found, got, image, earlier)
                found = Budget(1.0, 1.0)
            budgets[name] = found
        return budgets

    def _own_compare(self, draw: Draw, image: np.ndarray) -> bool:
        """Is it still wrong when the task's own compare(), where there is one, has the say?"""
        if not self.checker.reference.has_compare:
            return True
        return bool(self.checker.reference.compare(draw, image[: self.layout.out_bytes]))

    def _wrong(self, found: Mismatch, got: np.ndarray, image: np.ndarray, earlier: Sequence[Draw]) -> Failure:
        place = self.task.signature.results.index(found.name)
        limits = (self.length, self.task.tolerance.scale)
        for old in earlier:
            if isinstance(compare.judge(found.name, got, old.working[place], old.exact[place], limits), Budget):
                return self._named(Failure(Reason.STATEFUL, "same buffer, new contents: the old answer came back", True))
        left, size = self._unwritten(image, found.name)
        if not left:
            return self._named(Failure(Reason.WRONG, found.detail))
        if self._still_writing():
            return self._named(Failure(Reason.LATE, f"`{found.name}` was still being written after the call had returned", True))
        return self._named(
            Failure(Reason.WRONG, f"{found.detail.replace('got nan', 'never written')}; {left:,} of {size:,} words were never written")
        )

    def _unwritten(self, image: np.ndarray, name: str) -> tuple[int, int]:
        """How many 32-bit words of the output still hold the poison, of how many."""
        import numpy as np

        slot = self.layout.slot(name)
        words = image[slot.base : slot.base + slot.span // 4 * 4].view(np.uint32)
        return int((words == self.poison).sum()), words.size

    def _still_writing(self) -> bool:
        """Does the output change while the process runs on without a call?"""
        before = self.outputs.array.copy()
        for _ in range(LATE_LOOKS):
            if isinstance(self.runner.settle(SETTLE_S), Failure):
                return False
            if not (before == self.outputs.array).all():
                return True
        return False

    def _again(self, draw: Draw, image: np.ndarray, budgets: dict[str, Budget], ns: float) -> float | Failure:
        """More launches on the same contents, then a moment without calls: nothing may move."""
        best, began = ns, time.monotonic()
        for _ in range(LAUNCHES - 1):
            if time.monotonic() - began > LAUNCHES_S:
                break
            took = self._launch(draw)
            if isinstance(took, Failure):
                return took
            best = min(best, took)
            if failure := self._moved(image, budgets, Reason.UNSTABLE):
                return failure
        before = self.outputs.array.copy()
        settled = self.runner.settle(SETTLE_S)
        if isinstance(settled, Failure):
            return self._named(settled)
        if not (before == self.outputs.array).all():
            return self._named(Failure(Reason.LATE, "the output changed after the call had returned", True))
        return best

    def _moved(self, image: np.ndarray, budgets: dict[str, Budget], reason: Reason) -> Failure | None:
        for name, budget in budgets.items():
            slot = self.layout.slot(name)
            if compare.varies(view(image, slot), view(self.outputs.array, slot), budget):
                return self._named(Failure(reason, f"`{name}` differs between two launches on the same contents"))
        return None


def _said(names: list[str]) -> str:
    return "the memory of " + ", ".join(f"`{name}`" for name in names)
