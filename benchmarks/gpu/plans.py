"""Launch plans of many kernels: captured, replayed in a launcher, held against the reference, compared from launch to launch.

    python benchmarks/gpu/plans.py [--seconds 240] [--only rmsnorm,ops] [--inside 12] [--out FOLDER] [--fresh]

Kernels are the starts, baselines and deck variants of examples/gpu and tests/gpu/tasks, and operations as in level 1 of KernelBench
(ops.py). Each goes through the judge's own check on one case: every call alone, calls in a chain, 20 launches of the same contents.
Deck variants that the judge would reject are among them. While one kernel is checked, the next is captured. Then, on a quiet card,
`--inside` kernels are timed alone in a launcher and in a process with torch that queues a graph of the same calls in the same way.

It writes OUT/plans.jsonl, a line a kernel, and plans.json. Bars: 40 kernels replayed and right; times within 1 %.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import bench
import msgspec
import ops
import workbench
from bench import Bar, Book, Clock, Desk, Session
from inside import Job, Timed
from msgspec import Struct
from msgspec.structs import replace
from places import Captures, Got, Place
from units import OPS, RANK, Unit, folders, ordered, units_of, units_of_ops

from keepfast import settings, shop
from keepfast.errors import KeepfastError, MachineError, UsageError
from keepfast.gpu.messages import Ran, Run, Solo
from keepfast.judge.endings import Failure
from keepfast.judge.gpu import peer
from keepfast.judge.gpu.check import Checker
from keepfast.judge.gpu.launchers import Launcher, Launchers
from keepfast.judge.gpu.provenance import short
from keepfast.judge.gpu.stages import timed_calls
from keepfast.judge.gpu.workers import Captured
from keepfast.model import Reason, Task
from keepfast.stats import median
from keepfast.task.load import load

INSIDE = "inside "  # keys of times in a process with torch begin so
OPEN_S, INSIDE_S = 30.0, 3.0  # to get ready; to compare the times of one kernel
GUESS_S = (5.0, 40.0)  # a kernel; one that torch.compile makes
UNABLE = (Reason.NOT_A_PLAN, Reason.GRAPHS, Reason.UNSTABLE_PLAN)  # what a plan cannot say
ABSENT = ("is not installed", "No module named")
LAUNCHES = 24  # timed alone
MOST_APART = 0.01
ENDED = "the process with torch ended before it came to this one"  # and says nothing of the kernel


class Result(Struct, frozen=True):
    """`nodes` of a call, by kind of work; `identical`: every launch of the same contents gave the same bits, None: none came so far."""

    task: str
    kind: str
    name: str
    case: str
    passes: bool
    reason: str = ""
    detail: str = ""
    nodes: dict[str, int] = {}
    kernels: tuple[str, ...] = ()
    calls: int = 0
    plan_bytes: int = 0
    restored_bytes: int = 0
    identical: bool | None = None
    launches: int = 0
    call_us: float = 0.0
    host_us: float = 0.0
    capture_s: float = 0.0
    check_s: float = 0.0


class Pace(Struct, frozen=True):
    """Microseconds of a call, alone in a launcher and in a process with torch."""

    key: str
    launcher_us: float
    inside_us: float
    error: str = ""

    @property
    def apart(self) -> float:
        return self.launcher_us / self.inside_us - 1 if self.inside_us else 0.0


class Summary(Struct, frozen=True):
    sessions: tuple[Session, ...]
    kernels: int
    right: int
    identical: int
    by_kind: dict[str, tuple[int, int]]  # right, of all
    reasons: dict[str, int]
    not_encoded: tuple[str, ...]
    other_failures: tuple[str, ...]
    paces: tuple[Pace, ...]
    results: tuple[Result, ...]
    bars: tuple[Bar, ...]


class Given(bench.Given, frozen=True, kw_only=True):
    only: str
    inside: int


# --------------------------------------------------------------------------------------------- checks


class Heard:
    """Launchers whose launchers tell what every launch of the same contents answered."""

    def __init__(self, launchers: Launchers) -> None:
        self.launchers, self.ran = launchers, list[Ran]()

    def start(self) -> Launcher:
        launcher = self.launchers.start()
        run = launcher.run

        def listened(order: Run, *more: float) -> Ran | Failure:
            found = run(order, *more)
            if order.against and isinstance(found, Ran):
                self.ran.append(found)
            return found

        launcher.run = listened  # type: ignore[assignment,method-assign]
        return launcher


def checked(got: Got, place: Place, launchers: Launchers) -> Result:
    """The judge's check of one kernel. Raises what went wrong with us."""
    if isinstance(got.found, Exception):
        raise got.found
    unit, found = got.unit, got.found
    blank = Result(unit.task, unit.kind, unit.name, unit.case, False, capture_s=got.seconds)
    if isinstance(found, Failure):
        return replace(blank, reason=found.reason.value, detail=found.detail)
    began, heard, plan = time.monotonic(), Heard(launchers), found.plans[unit.case].plan
    right = Checker(heard, place.oracle, shop.fresh()).check(found, (place.stages[unit.case],), place.stock)  # type: ignore[arg-type]
    made = replace(
        blank,
        nodes=dict(Counter(type(plan.nodes[i].work).__name__.lower() for i in plan.of_call(0))),
        kernels=tuple(dict.fromkeys(short(k.name) for k in plan.kernels())),
        calls=plan.calls,
        plan_bytes=len(found.plans[unit.case].data),
        restored_bytes=sum(len(b.data) for b in plan.blocks),
        identical=all(r.identical for r in heard.ran) if heard.ran else None,
        launches=len(heard.ran) + 1,
        host_us=found.host_us[unit.case],
        check_s=time.monotonic() - began,
    )
    if isinstance(right, Failure):
        return replace(made, reason=right.reason.value, detail=right.detail)
    return replace(made, passes=True, call_us=right.of(unit.case).call_ns / 1e3)


# --------------------------------------------------------------------------------------------- in a launcher, and inside


class Alone(Struct, frozen=True):
    """A kernel timed alone in a launcher, to be timed elsewhere in launches of as many calls."""

    got: Got
    calls: int
    us: float


def alone(got: Got, place: Place, launchers: Launchers, call_us: float) -> Alone:
    stage, stock = place.stages[got.unit.case], place.stock[got.unit.case]
    calls = timed_calls(stage, 1e3 * call_us)
    assert isinstance(got.found, Captured)
    with launchers.start() as launcher:
        opened = launcher.open(stage.layout, (got.found.arm(stage.name),), (stock.bank, stock.fd), stage.results)
        found = opened if isinstance(opened, Failure) else launcher.solo(Solo(0, calls, LAUNCHES))
    if isinstance(found, Failure):
        raise MachineError(f"alone in a launcher it failed: {found.detail}")
    return Alone(got, calls, 1e3 * found.ms / calls)


def inside(kept: Sequence[Alone], card: str, seconds: float) -> Iterator[Pace]:
    """The same kernels in a process with torch, which is given so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.json"
        path.write_bytes(msgspec.json.encode([job(one) for one in kept]))
        argv = [sys.executable, str(Path(__file__).with_name("inside.py")), str(path)]
        ours = settings.reference_environment(1)
        places = (*peer.folders("keepfast", "msgspec", "numpy"), ours.get("PYTHONPATH", ""))
        env = ours | peer.visible(card) | {"PYTHONPATH": os.pathsep.join(place for place in places if place)}
        with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env, text=True) as process:
            timer = threading.Timer(seconds, process.kill)
            timer.start()
            assert process.stdout is not None
            yield from heard(process.stdout, {one.got.unit.key: one.us for one in kept})
            timer.cancel()


def heard(lines: Iterable[str], ours: dict[str, float]) -> Iterator[Pace]:
    """What the process says of each kernel; of those that it says nothing of, that it ended before."""
    missing = dict(ours)
    for line in lines:
        found = msgspec.json.decode(line, type=Timed)
        missing.pop(found.key, None)
        yield Pace(found.key, ours[found.key], found.us, found.error)
    for key, us in missing.items():
        yield Pace(key, us, 0.0, ENDED)


def job(one: Alone) -> Job:
    arm, tree = one.got.unit.arm, one.got.tree
    assert tree is not None
    files = tuple((f.path, f.data.decode()) for f in tree.files)
    return Job(
        one.got.unit.key, arm.task.folder, files, tree.path, arm.task.entry_path, arm.task.entry_symbol, one.got.unit.case, one.calls
    )


# --------------------------------------------------------------------------------------------- all of it


def tasks_of(only: str, room: Path) -> dict[str, Task]:
    """By name. That of the operations is written into `room`."""
    made = {**folders(), OPS: ops.make_task(room / OPS)}
    wanted = [name for name in only.split(",") if name] or list(made)
    if unknown := [name for name in wanted if name not in made]:
        raise UsageError(f"no task `{unknown[0]}`; there are {', '.join(made)}")
    return {name: task for name in wanted if (task := read(made[name])) is not None}


def read(folder: Path) -> Task | None:
    """The task; one that cannot be read is said, and the others go on."""
    try:
        return load(folder)
    except KeepfastError as error:
        print(f"{folder.name}: {error}", file=sys.stderr, flush=True)
        return None


def every(tasks: dict[str, Task]) -> list[Unit]:
    """All kernels in order. A task whose deck does not fit is said, and has none."""
    found: list[Unit] = []
    for name, task in tasks.items():
        try:
            found += units_of_ops(task) if name == OPS else list(units_of(task))
        except ValueError as error:
            print(error, file=sys.stderr, flush=True)
    return ordered(found)


def compared(units: Sequence[Unit], count: int) -> set[str]:
    """Keys of those that are timed inside too: starts and operations, half of each."""
    return {u.key for kind in ("start", "op") for u in [u for u in units if u.kind == kind][: count // 2]}


class Plans:
    """One session: places, captures, checks, times."""

    def __init__(self, given: Given, desk: Desk, book: Book, clock: Clock) -> None:
        self.given, self.desk, self.book, self.clock = given, desk, book, clock

    def run(self, room: Path) -> None:
        tasks = tasks_of(self.given.only, room)
        units = every(tasks)
        self.compared = {key for key in compared(units, self.given.inside) if not self.book.done_with(f"{INSIDE}{key}")}
        todo = [u for u in units if not self.book.done_with(u.key) or (u.key in self.compared and self._passed(u))]
        if not todo or not self.clock.room("open", OPEN_S):
            return
        with ExitStack() as stack:
            station = self.desk.station(next(iter(tasks.values())))
            places = self._places(tasks, todo, stack)
            captures = Captures([u for u in todo if u.case in places[u.task].stages], places, station, self._room)
            captures.start()
            stack.callback(captures.stop)
            kept = list(self._checked(captures, places, station.launchers))
            captures.stop()  # from here on the card is quiet
            self._paced(kept, places, station.launchers)

    def _room(self, unit: Unit) -> bool:
        """Whether it can still be captured and checked, and times be compared after it."""
        return self.clock.left - INSIDE_S * len(self.compared) >= GUESS_S[unit.kind == "compiled"]

    def _passed(self, unit: Unit) -> bool:
        found = self.book.find(unit.key, Result)
        return found is not None and found.passes

    def _places(self, tasks: dict[str, Task], todo: Sequence[Unit], stack: ExitStack) -> dict[str, Place]:
        """A task that cannot be got ready is said, and its units stay to be done."""
        names = dict.fromkeys(u.task for u in todo)
        places = {name: Place(tasks[name], {u.case for u in todo if u.task == name}, self.desk.card) for name in names}
        for name, place in places.items():
            stack.callback(place.close)
            try:
                place.prepare(self.desk.machine)
            except KeepfastError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
        return places

    def _checked(self, captures: Captures, places: dict[str, Place], launchers: Launchers) -> Iterator[tuple[Got, float]]:
        """What passed and is to be timed, with the time of a call in us."""
        for got in captures:
            found = self.book.once(got.unit.key, Result, lambda: checked(got, places[got.unit.task], launchers))  # noqa: B023  called at once
            if found is None:
                continue
            print(line(found), flush=True)
            if found.passes and got.unit.key in self.compared and isinstance(got.found, Captured):
                yield got, found.call_us

    def _paced(self, kept: Sequence[tuple[Got, float]], places: dict[str, Place], launchers: Launchers) -> None:
        made: list[Alone] = []
        for got, call_us in kept:
            try:
                made.append(alone(got, places[got.unit.task], launchers, call_us))
            except KeepfastError as error:
                print(f"{got.unit.key}: {error}", file=sys.stderr, flush=True)
        for pace in inside(made, self.desk.card.visible, max(self.clock.left, INSIDE_S)) if made else ():
            if pace.error != ENDED and (not pace.error or f"{INSIDE}{pace.key}" not in self.book):
                self.book.store.add(f"{INSIDE}{pace.key}", pace)
            print(f"  {pace.key:<60} launcher {pace.launcher_us:.2f} us, inside {pace.inside_us:.2f} us {pace.error}", flush=True)


# --------------------------------------------------------------------------------------------- what they say


def line(found: Result) -> str:
    nodes = ", ".join(f"{n} {kind}" for kind, n in found.nodes.items())
    same = {True: "identical", False: "within its variation", None: ""}[found.identical if found.passes else None]
    said = f"{found.call_us:.2f} us, {nodes}, {same}" if found.passes else f"{found.reason}: {found.detail}"
    return f"  {found.task}: {found.name:<40} {found.capture_s:5.1f} + {found.check_s:4.1f} s  {said}"


def summed(book: Book, names: Sequence[str]) -> Summary:
    results = [r for name in names for r in book.all(f"{name}: ", Result).values()]
    paces = tuple(book.all(INSIDE, Pace).values())
    right = [r for r in results if r.passes]
    failed = [r for r in results if not r.passes]
    kinds = {kind: [r for r in results if r.kind == kind] for kind in RANK}
    unable, others = ([r for r in failed if (r.reason in UNABLE) is wanted] for wanted in (True, False))
    identical = sum(r.identical is True for r in right)
    return Summary(
        sessions=book.sessions(),
        kernels=len(results),
        right=len(right),
        identical=identical,
        by_kind={kind: (sum(r.passes for r in found), len(found)) for kind, found in kinds.items()},
        reasons=dict(Counter("not installed" if absent(r) else r.reason for r in failed)),
        not_encoded=tuple(map(failure, unable)),
        other_failures=tuple(map(failure, others)),
        paces=paces,
        results=tuple(results),
        bars=bars(right, paces),
    )


def failure(found: Result) -> str:
    return f"{found.task}: {found.name}: {found.reason}, {found.detail}"


def absent(found: Result) -> bool:
    return any(words in found.detail for words in ABSENT)


def bars(right: Sequence[Result], paces: Sequence[Pace]) -> tuple[Bar, ...]:
    made = [Bar("kernels replayed and right", "at least 40", f"{len(right)}", len(right) >= 40)]
    if known := [p for p in paces if not p.error]:
        worst = max(known, key=lambda p: abs(p.apart))
        said = f"{worst.apart:+.2%} ({worst.key}), median {median([p.apart for p in known]):+.2%}, n = {len(known)}"
        made.append(Bar("launcher over inside", f"within {MOST_APART:.0%}", said, abs(worst.apart) <= MOST_APART))
    return tuple(made)


def tell(found: Summary) -> None:
    rows = [("kernels", "right", "of"), *((kind, str(right), str(of)) for kind, (right, of) in found.by_kind.items())]
    print("\n" + workbench.table(rows))
    print(f"bits     {found.identical} of {found.right} identical in every launch of the same contents, the others within their tolerance")
    print(f"reasons  {', '.join(f'{n} {reason}' for reason, n in found.reasons.items()) or 'none'}")
    for text in (*found.not_encoded, *found.other_failures):
        print(f"         {text}")
    table = [(p.key, f"{p.launcher_us:.2f}", f"{p.inside_us:.2f}", f"{p.apart:+.2%}", p.error) for p in found.paces]
    if table:
        print(workbench.table([("us of a call", "launcher", "inside", "", ""), *table]))


def run(given: Given) -> int:
    clock = Clock(given.seconds)
    if given.seconds > 0:
        with Desk(given.card) as desk, workbench.room() as room:
            book = Book(given, "plans", desk.session())
            try:
                Plans(given, desk, book, clock).run(room)
            except (bench.Stop, KeepfastError) as error:
                print(f"ended early: {error}", file=sys.stderr)
    else:
        book = Book(given, "plans", None)
    found = summed(book, [*folders(), OPS])
    tell(found)
    return bench.summary(book, found, found.bars, "plans")


def main(words: list[str] | None = None) -> int:
    parser = bench.arguments(__doc__, 240.0)
    parser.add_argument("--only", default="", help="tasks, by the names of their folders; ops: the operations")
    parser.add_argument("--inside", type=int, default=12, help="kernels that are timed in a process with torch too")
    return bench.called(parser, words, Given, run)


if __name__ == "__main__":
    sys.exit(main())
