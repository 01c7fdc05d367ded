"""A GPU judge with everything but itself in this process: see inside.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from keepfast.gpu.layout import Layout
from keepfast.gpu.messages import Mutant
from keepfast.judge.gpu.judge import GpuBench, GpuJudge
from keepfast.materialise import tree_hash
from keepfast.model import Begin, Calibration, Candidate, CaseStanding, Event, File, Machine, Task, Verdict
from tests.judge.made_rounds import calibrated
from tests.judge.tasks import softmax_task

from . import fakes
from .inside import Acts, FakeCard, FakeLaunchers, FakeOracle, FakePool

PATH = "kernel/kernel.py"
MACHINE = Machine("cpu", 2, "6", "gcc", "walls", hash="m")
QUIET = calibrated(sigma=0.001)


def source(text: bytes, n: int = 2) -> Candidate:
    files = (File(PATH, text),)
    return Candidate(files, tree_hash(files), "", n)


def candidate(n: int = 2, **acts: Any) -> Candidate:
    return source(Acts(**acts).source(), n)


START = candidate(1, code="start")


def gpu_task(folder: Path, **changes: Any) -> Task:
    return softmax_task(str(folder), **{"languages": ("triton",), "entry_path": PATH} | changes)


class Stand:
    """`told`: events; `codes`: code that was judged before, by number."""

    def __init__(
        self,
        folder: Path,
        task: Task | None = None,
        machine: Machine = MACHINE,
        mutants: tuple[Mutant, ...] = (),
        laid: Callable[[Layout], Layout] = lambda layout: layout,
    ) -> None:
        self.task = task or gpu_task(folder)
        self.told: list[Event] = []
        self.codes: dict[str, int] = {}
        layouts = tuple(laid(fakes.layout(case.name, 4096, (4096,))) for case in self.task.cases)
        self.oracle, self.launchers, self.pool, self.card = FakeOracle(layouts, (), mutants), FakeLaunchers(), FakePool(), FakeCard()
        parts: Any = (self.card, self.pool, self.launchers, self.oracle)
        walls: Any = SimpleNamespace(strength="partial")
        self.judge = GpuJudge(GpuBench(self.task, walls, machine, *parts, folder, self.codes.get, self.told.append, Random(7)))

    def begin(self, start: Candidate = START, calibration: Calibration | None = QUIET) -> Begin:
        return self.judge.begin(start, calibration)

    def begun(self, calibration: Calibration | None = QUIET) -> Stand:
        assert self.begin(calibration=calibration).verdict.kept
        self.told.clear()
        self.forget()
        return self

    def forget(self) -> None:
        for seen in (self.launchers.opened, self.launchers.orders, self.oracle.filled, self.pool.subjects):
            seen.clear()

    def evaluate(self, against: Candidate = START, standing: tuple[CaseStanding, ...] = (), **acts: Any) -> Verdict:
        return self.judge.evaluate(candidate(**acts), against, standing)


def rungs(verdict: Verdict) -> list[tuple[str, bool]]:
    return [(r.name, r.ok) for r in verdict.rungs]


def climbed(*names: str, last: bool = True) -> list[tuple[str, bool]]:
    """Rungs passed, the last one perhaps not."""
    return [(name, last or name != names[-1]) for name in names]
