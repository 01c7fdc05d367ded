"""What the scripts for the GPU judge share: the card with its workers and launchers, a judge for one task after the other, finished
units on disk, the time that may be used, and how results are written.

Every script takes --seconds and can be started again: a unit that is finished is a line of OUT/NAME.jsonl and is not done again, on
whichever card of the same kind; one that failed is a line too and is tried once more. `--seconds 0` needs no GPU: it sums up what is
there. Must not know what any script measures.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import msgspec
from msgspec import Struct

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import workbench
from workbench import Bar, Line, Store, called, write

from keepfast import settings, shop
from keepfast.device import nvidia, nvidia_software
from keepfast.errors import MachineError
from keepfast.judge.gpu.asking import Oracle
from keepfast.judge.gpu.judge import GpuBench, GpuJudge
from keepfast.materialise import tree_hash
from keepfast.model import Candidate, Case, Fact, File, Machine, Round, Task
from keepfast.station import Station
from keepfast.stats import median
from keepfast.task.load import load
from keepfast.task.paths import expand
from keepfast.walls.base import Walls

__all__ = [
    "Bar",
    "Book",
    "Clock",
    "Desk",
    "Given",
    "Session",
    "above",
    "arguments",
    "called",
    "candidate",
    "plain",
    "start_of",
    "summary",
    "timed_cases",
]

ROOT = workbench.ROOT
RESULTS = ROOT / "benchmarks" / "results" / "gpu"
TRIES = 2  # of a unit that fails
IN_A_ROW = 4  # failures after which the session ends: the machine is not fit, and time is scarce
SESSION, FAILED = "session ", "failed "  # keys of such lines begin so
T = TypeVar("T")


def above(name: str) -> ModuleType:
    """A script of the folder above, or of one beside this one, that cannot be imported by its bare name."""
    spec = importlib.util.spec_from_file_location(f"above_{name.replace('/', '_')}", Path(__file__).resolve().parents[1] / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # records look up the types of their fields there
    spec.loader.exec_module(module)
    return module


# --------------------------------------------------------------------------------------------- the command line


class Given(Struct, frozen=True, kw_only=True):
    """What every script is given."""

    seconds: float
    out: Path
    fresh: bool
    card: str


def arguments(doc: str | None, seconds: float) -> argparse.ArgumentParser:
    """The options that every script has. `seconds`: what the whole of it is expected to take."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=seconds, help="no unit is begun that would end later; 0: sum up, without a GPU")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of what is written; what --out lacks is copied from the default")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier start has finished")
    parser.add_argument(
        "--card", default="", help="index or UUID of the GPU; without it the first that CUDA_VISIBLE_DEVICES names, or a free one"
    )
    return parser


class Clock:
    """Time since the script began, and how long units of each kind take."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.now, self.began = seconds, now, now()
        self.took: dict[str, list[float]] = {}

    @property
    def left(self) -> float:
        return self.seconds - (self.now() - self.began)

    def room(self, kind: str, guess: float) -> bool:
        """Whether one more unit of this kind is expected to end in time. `guess`: seconds, until one was seen. Where not even the first one
        is, that is said."""
        needed = median(self.took[kind]) if kind in self.took else guess
        if self.left < needed and not self.took:
            print(f"no time for {kind}: about {needed:.0f} s are needed, and {self.left:.0f} s are left", file=sys.stderr, flush=True)
        return self.left >= needed

    @contextmanager
    def counted(self, kind: str) -> Iterator[None]:
        began = self.now()
        try:
            yield
        finally:
            self.took.setdefault(kind, []).append(self.now() - began)


# --------------------------------------------------------------------------------------------- what is finished


class Session(Struct, frozen=True):
    """Where, when and how a script ran."""

    machine: Machine
    driver: str
    versions: tuple[Fact, ...]
    date: str
    command: str

    @property
    def label(self) -> str:
        """What must be the same for units of two sessions to count together: kind of card, driver, versions."""
        return ", ".join([self.machine.gpu, f"driver {branch(self.driver)}", *(f"{v.name} {v.value}" for v in self.versions)])


def session(machine: Machine) -> Session:
    """That of now, on this machine."""
    driver, _ = nvidia.drivers()
    versions = tuple(Fact(name, value) for name, value in nvidia_software.versions() if value)
    return Session(machine, driver, versions, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), workbench.command("benchmarks/gpu"))


def branch(driver: str) -> str:
    """580.159 of 580.159.04: the last number is told in the session, and is no reason to measure everything again."""
    return ".".join(driver.split(".")[:2])


class Failed(Struct, frozen=True):
    """A unit that ended in an error instead of a result."""

    key: str
    error: str
    seconds: float


class Stop(Exception):
    """Nothing more can be done in this session."""


class Book:
    """Finished units of one script. Without a session it only reads, units of the label that was written last."""

    def __init__(self, given: Given, name: str, session: Session | None, digest: str = "") -> None:
        """`digest`: of what units are made from, where their keys do not say so."""
        self.path, self.session, self.in_a_row = given.out / f"{name}.jsonl", session, 0
        carried = RESULTS / f"{name}.jsonl"
        if given.fresh and given.seconds > 0:
            self.path.unlink(missing_ok=True)
        elif not self.path.exists() and carried.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(carried, self.path)
        label = session.label if session else _last_label(self.path)
        self.store = Store(self.path, label, f"{name} {digest}".strip())
        if session:
            self.store.add(f"{SESSION}{session.date} {os.getpid()}", session)

    def __contains__(self, key: str) -> bool:
        return key in self.store.known

    def find(self, key: str, kind: type[T]) -> T | None:
        return self.store.find(key, kind)

    def all(self, prefix: str, kind: type[T]) -> dict[str, T]:
        """Finished units whose key begins so, as they are on disk now: another process may have written some."""
        found = {line.key: line.item for line in self.store._lines() if (line.machine, line.task) == (self.store.machine, self.store.task)}
        return {key: msgspec.json.decode(raw, type=kind) for key, raw in found.items() if key.startswith(prefix)}

    def once(self, key: str, kind: type[T], make: Callable[[], T]) -> T | None:
        """The finished unit, or a new one. None: it failed, and that is a line; after TRIES of them it is left alone. Stop: too many."""
        if (found := self.find(key, kind)) is not None or f"{FAILED}{TRIES} {key}" in self:
            return found
        began = time.monotonic()
        try:
            made = make()
        except Stop:  # time was over: nothing that this unit did
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it is this unit's line, and the next one goes on
            self._failed(key, error, time.monotonic() - began)
            return None
        self.in_a_row = 0
        self.store.add(key, made)
        return made

    def _failed(self, key: str, error: Exception, seconds: float) -> None:
        number = next(n for n in range(1, TRIES + 1) if f"{FAILED}{n} {key}" not in self)
        text = f"{type(error).__name__}: {error}"
        self.store.add(f"{FAILED}{number} {key}", Failed(key, text, seconds))
        print(f"  {key}: {text}", file=sys.stderr, flush=True)
        self.in_a_row += 1
        if self.in_a_row >= IN_A_ROW:
            raise Stop(f"{IN_A_ROW} units in a row failed, the last one so: {text}")

    def done_with(self, key: str) -> bool:
        """Whether there is nothing more to do for it."""
        return key in self or f"{FAILED}{TRIES} {key}" in self

    def sessions(self) -> tuple[Session, ...]:
        return tuple(self.all(SESSION, Session).values())

    def failures(self) -> tuple[Failed, ...]:
        """Units that failed and were not finished later."""
        return tuple({f.key: f for f in self.all(FAILED, Failed).values() if f.key not in self}.values())


def _last_label(path: Path) -> str:
    lines = path.read_bytes().splitlines() if path.exists() else []
    for text in reversed(lines):
        try:
            return msgspec.json.decode(text, type=Line).machine
        except msgspec.MsgspecError:
            continue  # cut off
    return ""


# --------------------------------------------------------------------------------------------- the card


Cases = Callable[[Task], tuple[Case, ...]]


def every_case(task: Task) -> tuple[Case, ...]:
    return task.cases


class Desk:
    """The card, capture workers and launchers of one script, shared by the judges of its tasks."""

    def __init__(self, card: str = "") -> None:
        self.card = nvidia.choose(card or settings.visible_gpu() or None)
        self.walls = Walls.detect()
        if self.walls.strength == "none":
            raise MachineError("this machine has no walls, and the figures are of a judge that has them", next_step="keepfast doctor")
        self.machine = nvidia.fingerprint(self.walls.strength, self.card.uuid)
        self._stack = ExitStack()
        self._first: Station | None = None

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def session(self) -> Session:
        return session(self.machine)

    def station(self, task: Task) -> Station:
        """The card for one task. Workers and launchers are those of the first one."""
        made = Station(task, self.walls, self.card)
        if self._first is None:
            self._first = made
            self._stack.callback(made.close)
        else:
            made.pool, made.launchers = self._first.pool, self._first.launchers  # type: ignore[misc]  # as its own would be kept
        return made

    def measured(self, station: Station, out: Path) -> Machine:
        """The machine with its ceilings, measured once a card and folder."""
        known = Store(out / "ceilings.jsonl", self.machine.hash, "ceilings")
        ceilings = known.once("ceilings", tuple[tuple[str, float], ...], station.ceilings)
        return msgspec.structs.replace(self.machine, ceilings=ceilings)

    @contextmanager
    def judge(self, folder: Path, out: Path, kind: type[GpuJudge] = GpuJudge, *, cases: Cases = every_case) -> Iterator[GpuJudge]:
        """A judge of the task in `folder` that knows no earlier code. `cases`: those of the task that it has."""
        task = load(folder)
        task = msgspec.structs.replace(task, cases=cases(task))
        station = self.station(task)
        with ExitStack() as stack:
            oracle = stack.enter_context(Oracle(task, self.card.visible))
            station.oracle = oracle  # type: ignore[misc]  # as its own would be kept
            stack.callback(station.__dict__.pop, "oracle", None)
            builds = self.walls.folder()
            stack.callback(shutil.rmtree, builds, ignore_errors=True)
            machine = self.measured(station, out)
            parts = (station, station.pool, station.launchers, oracle)
            made = kind(GpuBench(task, self.walls, machine, *parts, builds, lambda code: None, workbench.ignore, shop.fresh()))
            stack.callback(made.close)
            yield made


def timed_cases(task: Task) -> tuple[Case, ...]:
    """Without those that are only checked."""
    return task.timed


def start_of(task: Task) -> Candidate:
    """The kernel that lies in the task's folder, without what Python compiled there."""
    paths = (path for path in expand(Path(task.root), task.editable) if "__pycache__" not in path)
    return of_files(tuple(File(path, (Path(task.root) / path).read_bytes()) for path in paths))


def candidate(task: Task, text: str, n: int = 0) -> Candidate:
    """One source for the entry, and nothing else."""
    return of_files((File(task.entry_path, text.encode()),), n)


def of_files(files: tuple[File, ...], n: int = 0) -> Candidate:
    return Candidate(files, tree_hash(files), "", n)


def plain(made: Round) -> Round:
    """Without the single pairs of slots, which nobody reads again."""
    return msgspec.structs.replace(made, cases=tuple(msgspec.structs.replace(c, blocks=()) for c in made.cases))


# --------------------------------------------------------------------------------------------- what comes of it


def summary(book: Book, result: Struct, bars: Sequence[Bar], name: str) -> int:
    """Write OUT/NAME.json, print failures and bars; the exit code: 1 when a bar is missed."""
    write(book.path.with_name(f"{name}.json"), result)
    for failure in book.failures():
        print(f"failed   {failure.key}: {failure.error}")
    return workbench.settled(bars)
