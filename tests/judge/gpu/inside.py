"""Stand-ins for worker pool, oracle, launchers and card in this process: they do at once what a kernel's first line says that it does."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from keepfast import wire
from keepfast.errors import MachineError
from keepfast.gpu import messages, plan
from keepfast.gpu.layout import Layout
from keepfast.gpu.messages import (
    Ahead,
    Answer,
    Audit,
    Bank,
    CaseWork,
    Described,
    KernelFacts,
    Mutant,
    Mutated,
    Profile,
    Profiled,
    Ran,
    Run,
    Solo,
    Soloed,
    Time,
    Timed,
    Tolerance,
    Wind,
    Wound,
)
from keepfast.judge.builder import BuiltTree, Site
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.check import Stock
from keepfast.judge.gpu.launchers import Opened
from keepfast.judge.gpu.stages import Stage
from keepfast.judge.gpu.workers import Captured, Planned, Subject
from keepfast.model import Case, File, Reason, Task

from . import fakes


class Acts(Struct, frozen=True):
    """What a kernel does. It is the first line of its source, and all of its plan.

    Moments are those of a launcher: verbatim, mixed, some, again (one arm), subject, opponent (launched again after a round), timed.
    """

    code: str = "rms"  # what it launches
    ns: float = 10_000.0  # of a call
    by_case: dict[str, float] = {}  # factor on it
    configs: dict[str, dict[str, list[float]]] = {}  # autotuned kernel -> case -> factor of each configuration; 0: does not compile
    ran: dict[str, dict[str, Any]] = {}  # moment -> fields of Ran
    said: dict[str, dict[str, Any]] = {}  # moment -> fields of Answer, for a call audited then
    crashes: tuple[str, ...] = ()  # moments, and capture, open, audit, profile, solo, wind
    timed: dict[str, Any] = {}  # fields of Timed
    shares: dict[str, float] = field(default_factory=lambda: {"rms_k": 1.0})  # kernel -> part of the GPU time
    watched: tuple[float, float] = (0.0, 0.0)  # us of a call while it is watched, and what there is room for
    keeps: bool = False  # has memory that lives on between calls
    wound: dict[str, Any] = {}  # fields of Wound; "ahead" as (wound, fields of Ran)
    moving: bool = False  # every capture launches another grid
    alone: float = 1.0  # factor on its time in a launcher of its own

    def source(self) -> bytes:
        return b"# " + msgspec.json.encode(self) + b"\nimport triton\n\n\n@triton.jit\ndef rms_k(x):\n    pass\n"


class Replica(Struct, frozen=True):
    """The data of a fake plan. `take`: how many captures of this source came before. `factor`: of the pinned configurations."""

    acts: Acts
    take: int
    case: str
    factor: float = 1.0

    @property
    def ns(self) -> float:
        return self.acts.ns * self.acts.by_case.get(self.case, 1.0) * self.factor


class FakePool:
    """Captures at once. `subjects`: all that was captured; `failing`: how often it fails from now on as a machine does."""

    def __init__(self) -> None:
        self.subjects: list[Subject] = []
        self.takes: Counter[bytes] = Counter()
        self.settled = self.holds = 0
        self.failing = False

    def settle(self) -> bool:
        self.settled += 1
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        self.holds += 1
        yield

    def capture(self, subject: Subject, timeout_s: float) -> Captured | Failure:
        if self.failing:
            raise MachineError("a capture worker did not get ready: no GPU")
        self.subjects.append(subject)
        source = next(f.data for f in subject.files if f.path == subject.entry_path)
        acts = msgspec.json.decode(source.splitlines()[0][2:], type=Acts)
        number = self.takes[source]
        self.takes[source] += 1
        if "capture" in acts.crashes or f"capture {number}" in acts.crashes:
            return Failure(Reason.CRASH, "the host code raised")
        factors = {w.layout.case: _factor(acts, w) for w in subject.cases}
        if not all(factors.values()):
            return Failure(Reason.BUILD, "out of shared memory")
        plans = {w.layout.case: _planned(Replica(acts, number, w.layout.case, factors[w.layout.case]), w) for w in subject.cases}
        tuned = tuple((name, tuple(f"BLOCK {i}" for i in range(len(cases["main"])))) for name, cases in acts.configs.items())
        return Captured(plans, dict.fromkeys(plans, 12.0), 0, 1 << 36, tuned, (), 0.5)


def _factor(acts: Acts, work: CaseWork) -> float:
    pins = dict(work.pins)
    return math.prod(cases[work.layout.case][pins.get(name, 0)] for name, cases in acts.configs.items())


def _planned(replica: Replica, work: CaseWork) -> Planned:
    grid = (replica.take + 1 if replica.acts.moving else 1, 1, 1)
    launch = plan.Kernel(0, "rms_k", grid, (128, 1, 1), 0, ())
    image = f"{replica.acts.code} {work.pins} rms_k".encode()
    nodes = tuple(plan.Node(i, launch, ()) for i in range(work.calls))
    blocks = (plan.Block(1 << 36, bytes(8)),) if replica.acts.keeps else ()
    made = plan.Plan(plan.VERSION, replica.case, work.calls, 0, (image,), nodes, (), ((),) * work.calls, blocks)
    return Planned(made, msgspec.json.encode(replica), 0, 1 << 36)


class FakeOracle:
    """Contents are the name of the case and a serial number, also found in the bank's size; `filled`: (case, draws, kind) of each.

    What it answers is what a launcher wrote into the audit memory, but that what launches `wrong` is wrong. It refuses audits of other
    contents than the last ones.
    """

    def __init__(self, layouts: tuple[Layout, ...], limits: tuple[tuple[float, float], ...] = (), mutants: tuple[Mutant, ...] = ()) -> None:
        self.layouts, self.limits, self.mutants = layouts, limits or ((0.0, 0.0),) * len(layouts), mutants
        self.filled: list[tuple[str, int, str]] = []
        self.metas: list[tuple[str, str, tuple[int, ...]]] = []
        self.seeds: list[tuple[int, ...]] = []
        self.serial: dict[str, int] = {}
        self.asked: list[str] = []
        self.wrong = ""

    def describe(self) -> Described:
        results = tuple(tuple(Tolerance(o.dtype, o.nbytes, 0.0, 0.0) for o in one.outputs) for one in self.layouts)
        return Described(self.layouts, self.limits, results)

    def fill(self, case: str, seeds: tuple[tuple[int, ...], ...], kind: str = "gpu", meta: tuple[int, ...] = ()) -> tuple[Bank, int]:
        self.filled.append((case, len(seeds), kind))
        self.metas.append((case, kind, meta))
        self.seeds += seeds
        size = 4096 + len(self.filled)
        if kind == "gpu":
            self.serial[case] = size
        fd = wire.memfd("bank", size)
        os.pwrite(fd, f"{case} {size}".encode(), 0)
        return Bank(kind, len(seeds), 2048, size), fd

    def ask(self, case: str, fd: int, size: int) -> Answer:
        self.asked.append(case)
        said = msgspec.json.decode(os.pread(fd, size, 0).rstrip(b"\0"))
        assert said["serial"] == self.serial[case], "contents of an earlier draw"
        if said["code"] == self.wrong:
            return Answer("out[3] is 0")
        budgets = tuple(Tolerance("float32", 64, b, 4 * b) for b in said["answer"].pop("budgets", [0.001]))
        return Answer(budgets=budgets, **said["answer"])

    def mutate(self) -> Mutated:
        return Mutated(self.mutants)


class FakeLaunchers:
    """`disturbed`: fields of Timed for the next rounds, each used once; `noise`: added to the log-ratio of the two arms in a round.
    `opened`: (case, (code, take) of each arm); `orders`: all."""

    def __init__(self) -> None:
        self.noise: Callable[[Replica, Replica], float] = lambda subject, opponent: 0.0
        self.disturbed: list[dict[str, Any]] = []
        self.opened: list[tuple[str, tuple[tuple[str, int], ...]]] = []
        self.tolerances: list[tuple[Tolerance, ...]] = []
        self.orders: list[Run | Audit | Time | Solo | Profile | Wind] = []
        self.started = self.alive = 0

    def start(self) -> FakeLauncher:
        self.started += 1
        return FakeLauncher(self)

    def timed(self) -> list[tuple[str, tuple[tuple[str, int], ...]]]:
        """What was opened with two arms."""
        return [(case, arms) for case, arms in self.opened if len(arms) == 2]


class FakeLauncher:
    def __init__(self, launchers: FakeLaunchers) -> None:
        self.all = launchers
        self.arms: tuple[Replica, ...] = ()
        self.serial = self.audited = self.opens = -1
        self.moment = ""

    def __enter__(self) -> FakeLauncher:
        self.all.alive += 1
        assert self.all.alive == 1, "two launchers at once"
        return self

    def __exit__(self, *error: object) -> None:
        self.close_case()
        self.all.alive -= 1

    def close_case(self) -> None:
        if self.audited >= 0:
            os.close(self.audited)
        self.arms, self.audited = (), -1

    def open(
        self, layout: Layout, arms: tuple[Planned, ...], contents: tuple[Bank, int], tolerances: tuple[Tolerance, ...]
    ) -> Opened | Failure:
        assert self.audited == -1, "a case is open"
        bank, fd = contents
        assert os.pread(fd, 4096, 0).rstrip(b"\0") == f"{layout.case} {bank.size}".encode(), "contents that were closed"
        self.arms, self.serial = tuple(msgspec.json.decode(a.data, type=Replica) for a in arms), bank.size
        assert all(arm.case == layout.case for arm in self.arms)
        self.all.opened.append((layout.case, tuple((arm.acts.code, arm.take) for arm in self.arms)))
        self.all.tolerances.append(tolerances)
        self.opens += 1
        if failure := self._crashed("open") or self._crashed(f"open {self.opens}"):
            return failure
        self.audited = wire.memfd("audit", 1 << 16)
        return Opened(messages.Opened((), 1 << 16, 0, 0.1), self.audited, "host")

    def run(self, order: Run) -> Ran | Failure:
        self.all.orders.append(order)
        names = ("verbatim", "mixed", "some", "again") if len(self.arms) == 1 else ("", "subject", "", "opponent")
        self.moment = names[0 if order.verbatim else 1 if order.keep else 2 if order.some else 3]
        ms = self.arms[order.arm].ns * order.calls / 1e6
        return self._crashed(self.moment) or Ran(ms, **_tuples(self.arms[order.arm].acts.ran.get(self.moment, {})))

    def audit(self, order: Audit) -> Failure | None:
        self.all.orders.append(order)
        self._write(self.arms[order.arm])
        return self._crashed("audit")

    def _write(self, arm: Replica) -> None:
        said = msgspec.json.encode({"serial": self.serial, "code": arm.acts.code, "answer": arm.acts.said.get(self.moment, {})})
        os.pwrite(self.audited, said.ljust(1 << 12, b"\0"), 0)

    def time(self, order: Time) -> Timed | Failure:
        self.all.orders.append(order)
        self.moment = "timed"
        if failure := self._crashed("timed"):
            return failure
        subject, opponent = self.arms
        self._write(subject)
        d, ms = math.log(subject.ns / opponent.ns) + self.all.noise(subject, opponent), [arm.ns * order.calls / 1e6 for arm in self.arms]
        times = {"d": d, "pairs": [d] * order.blocks, "subject_ms": ms[0], "opponent_ms": ms[1], "calls": order.calls}
        changed = subject.acts.timed | (self.all.disturbed.pop(0) if self.all.disturbed else {})
        odd = tuple(messages.Odd(*one) for one in changed.get("odd", ()))
        return Timed(**_tuples(times | {"sentinel_ms": (0.7, 0.7, 0.8)} | changed | {"odd": odd}))

    def solo(self, order: Solo) -> Soloed | Failure:
        self.all.orders.append(order)
        return self._crashed("solo") or Soloed(self.arms[0].ns * self.arms[0].acts.alone * order.calls / 1e6)

    def profile(self, order: Profile) -> Profiled | Failure:
        self.all.orders.append(order)
        kernels = tuple(KernelFacts(name, 1, 32, 0, 2048, 128, share) for name, share in self.arms[order.arm].acts.shares.items())
        return self._crashed("profile") or Profiled(kernels, *self.arms[order.arm].acts.watched)

    def wind(self, order: Wind, timeout_s: float) -> Wound | Failure:
        self.all.orders.append(order)
        said = dict(self.arms[order.arm].acts.wound)
        ahead = tuple(Ahead(wound, Ran(1.0, **_tuples(fields))) for wound, fields in said.pop("ahead", ()))
        return self._crashed("wind") or Wound(**said, ahead=ahead)

    def _crashed(self, moment: str) -> Failure | None:
        arm = self.arms[0]
        return Failure(Reason.CRASH, f"case {arm.case}: illegal address") if moment in arm.acts.crashes else None


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


class FakeCard:
    """`said`: what `unfit` answers, one after the other, then nothing; `trouble`: why `fit` gives up."""

    memory, uuid, arch = 1 << 37, "GPU-fake", "sm_90"

    def __init__(self) -> None:
        self.said: list[str] = []
        self.trouble = ""
        self.fits = 0

    def fit(self) -> None:
        self.fits += 1
        if self.trouble:
            raise MachineError(self.trouble)

    def unfit(self) -> str:
        return self.said.pop(0) if self.said else ""


def tree(site: Site, task: Task, files: tuple[File, ...], dtypes: dict[str, str], out: Path) -> BuiltTree | Failure:
    """Instead of builder.tree: everything builds but what says that it does not."""
    if any(b"does not build" in file.data for file in files):
        return Failure(Reason.BUILD, "kernel.py:1: invalid syntax")
    return BuiltTree(task.languages[0], files, ("kernel",), None, "", 0.0)


# ---------------------------------------------------------------------------------------------- cases and captures


def stage(case: str = "main", calls: int = 3, draws: int = 4, use: str = "both", limit: tuple[float, float] = (0.0, 0.0)) -> Stage:
    """Of a call with 4 KiB of arguments and as many of results."""
    layout = fakes.layout(case, 4096, (4096,))
    return Stage(Case(case, (("n", 1024),), use=use), layout, calls, draws, limit, (Tolerance("uint8", 4096, 0.0, 0.0),))


def stock(oracle: FakeOracle, *stages: Stage) -> dict[str, Stock]:
    return {s.name: Stock(*oracle.fill(s.name, ((1, 2, 3, 4),) * s.draws)) for s in stages}


def captured(acts: Acts, *stages: Stage, pool: FakePool | None = None) -> Captured:
    cases = tuple(CaseWork(s.layout, s.calls) for s in stages)
    found = (pool or FakePool()).capture(Subject("triton", "k.py", "kernel", (File("k.py", acts.source()),), cases, ()), 1.0)
    assert isinstance(found, Captured)
    return found
