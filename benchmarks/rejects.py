"""What a verdict costs on two cores: guard violation, compile error, wrong answer, screen-out, keep, hang; one timed case.

    python benchmarks/rejects.py [--repeats 10] [--cores 2] [--fresh]

Seconds are wall time around CpuJudge.evaluate, which is all that a verdict costs beyond commit and ledger (overhead.py). Each repeat
is a new candidate, so that nothing comes from an earlier build. The time of gcc alone is that of its command on the same broken source,
without walls. Bars are on the median. Killed, it goes on where it was; it writes benchmarks/results/rejects.jsonl and rejects.json.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import workbench
from msgspec import Struct
from shapes import Shape, source
from workbench import About, Bar, Store, candidate

from keepfast.judge.judge import CpuJudge
from keepfast.lang import base
from keepfast.model import Candidate, File, Kind, Reason, Task
from keepfast.stats import median
from keepfast.task import abi, tunables
from keepfast.walls.base import Walls

ROWS, COLUMNS = 160, 1024
GCC = "gcc alone"
PLAIN = source(Shape())
ONCE = "    rows(x, out, m, n);"
TWICE = f"{ONCE}\n{ONCE}"
SCALE = "scale(y, n, (float)(1.0 / sum));"


class Case(Struct, frozen=True):
    """A kind of verdict: what is changed in the start kernel, what must come of it, and the bar in seconds."""

    name: str
    old: str
    new: str
    reason: Reason
    seconds: float
    over_gcc: bool = False  # the bar is this much more than gcc's own time


KINDS = (
    Case("guard violation", "", "", Reason.GUARD, 0.3),
    Case("compile error", ONCE, "    rows(x, out, m, colunms);", Reason.BUILD, 0.3, over_gcc=True),
    Case("wrong answer", SCALE, "scale(y, n, (float)(1.01 / sum));", Reason.WRONG, 1.5),
    Case("screen-out", ONCE, TWICE, Reason.SLOWER, 5.0),
    Case("keep", ONCE, ONCE, Reason.FASTER, 30.0),
    Case("hang", ONCE, '    for (;;) __asm__ volatile("");', Reason.HANG, 3.0),
)


class Sample(Struct, frozen=True):
    seconds: float
    kind: Kind
    reason: Reason
    detail: str


class Cost(Struct, frozen=True):
    """Seconds of one kind."""

    name: str
    median: float
    fastest: float
    slowest: float
    samples: tuple[float, ...]
    unexpected: tuple[str, ...] = ()


class Result(Struct, frozen=True):
    about: About
    task: str
    cores: tuple[int, ...]
    costs: tuple[Cost, ...]
    bars: tuple[Bar, ...]


class Given(Struct, frozen=True):
    """The command line."""

    repeats: int
    cores: int
    fresh: bool
    results: Path


# --------------------------------------------------------------------------------------------- candidates


def made(kind: Case, repeat: int) -> Candidate:
    """The start kernel with the change, and a comment that no other repeat has."""
    text = f"// {kind.name}, {repeat}\n{PLAIN}"
    if kind.reason is Reason.GUARD:
        return candidate(text, File("reference.py", b"def inputs(case, rng): ...\n"), n=repeat + 1)
    if kind.old not in text:
        raise ValueError(f"the start kernel has no {kind.old!r}")
    return candidate(text.replace(kind.old, kind.new), n=repeat + 1)


def champion_of(kind: Case) -> Candidate:
    """What the candidate is judged against: for a keep a kernel that does all its work twice."""
    return candidate(PLAIN.replace(ONCE, TWICE) if kind.reason is Reason.FASTER else PLAIN)


def evaluated(judge: CpuJudge, kind: Case, repeat: int) -> Sample:
    one, against = made(kind, repeat), champion_of(kind)
    began = time.perf_counter()
    found = judge.evaluate(one, against, ())
    return Sample(time.perf_counter() - began, found.kind, found.reason, found.detail)


def fit(found: Sample) -> bool:
    """Not spoiled by the machine."""
    return found.kind is not Kind.VOID


# --------------------------------------------------------------------------------------------- gcc alone


def compile_tree(folder: Path, task: Task, one: Candidate, dtypes: dict[str, str]) -> tuple[str, ...]:
    """Writes what the builder would, and returns the command that it would run."""
    (step,) = base.by_name("c").plan(task, one.files, dtypes)
    texts = {f"tree/{file.path}": file.data for file in one.files}
    generated = {
        "keepfast.h": abi.header(task, dtypes),
        "shim.c": abi.shim(task, dtypes),
        "keepfast_tunables.h": tunables.header(tunables.parse("")),
    }
    texts |= {f"generated/{name}": text.encode() for name, text in generated.items()}
    for name, data in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "scratch").mkdir(exist_ok=True)
    return step.resolved({name: str(folder / name) for name in ("tree", "generated", "scratch", "made")})


def gcc_alone(room: Path, task: Task, dtypes: dict[str, str], kind: Case, repeat: int) -> Sample:
    argv = compile_tree(room / "gcc", task, made(kind, repeat), dtypes)
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    if done.returncode == 0:
        raise ValueError("the broken source compiles")
    return Sample(seconds, Kind.REJECT, Reason.BUILD, "")


# --------------------------------------------------------------------------------------------- costs and bars


def cost(name: str, samples: list[Sample], expected: Reason) -> Cost:
    seconds = [s.seconds for s in samples]
    odd = tuple(f"{s.reason}: {s.detail}" for s in samples if s.reason is not expected)
    return Cost(name, median(seconds), min(seconds), max(seconds), tuple(seconds), odd)


def bar(kind: Case, found: Cost, gcc: Cost) -> Bar:
    limit = kind.seconds + (gcc.median if kind.over_gcc else 0.0)
    asked = f"{kind.reason} in less than {limit:.2f} s" + (f" (gcc {gcc.median:.2f} s)" if kind.over_gcc else "")
    spread = f"{found.median:.3f} s [{found.fastest:.3f}, {found.slowest:.3f}], n = {len(found.samples)}"
    wrong = f"; {len(found.unexpected)} unexpected: {found.unexpected[0]}" if found.unexpected else ""
    return Bar(kind.name, asked, spread + wrong, found.median < limit and not found.unexpected)


def measured(judge: CpuJudge, store: Store, room: Path, repeats: int) -> tuple[Cost, ...]:
    """Costs of every kind, gcc's own first. Kinds take turns, so that a slow minute of the machine meets them all."""
    samples: dict[str, list[Sample]] = {name: [] for name in (GCC, *(k.name for k in KINDS))}
    broken = next(k for k in KINDS if k.over_gcc)
    for repeat in range(repeats):
        alone = store.once(f"{GCC} {repeat}", Sample, lambda: gcc_alone(room, judge.task, judge.arms.dtypes, broken, repeat))  # noqa: B023  called at once
        samples[GCC].append(alone)
        for kind in KINDS:
            one = store.once(f"{kind.name} {repeat}", Sample, lambda: evaluated(judge, kind, repeat), good=fit)  # noqa: B023  called at once
            samples[kind.name].append(one)
            print(f"  {kind.name:<16} {one.seconds:7.3f} s  {one.reason}  {one.detail}", flush=True)
    return (cost(GCC, samples[GCC], Reason.BUILD), *(cost(k.name, samples[k.name], k.reason) for k in KINDS))


def begin(judge: CpuJudge, store: Store) -> None:
    """Both champions checked and built, noise measured."""
    start = champion_of(KINDS[0])
    workbench.begin(judge, start, store)
    judge.evaluate(start, champion_of(next(k for k in KINDS if k.reason is Reason.FASTER)), ())


def run(given: Given) -> int:
    cores = tuple(sorted(os.sched_getaffinity(0))[-given.cores :])
    os.sched_setaffinity(0, cores)
    walls = Walls.detect()
    about = workbench.about(walls.strength)
    workbench.introduce(about)
    with workbench.room() as room:
        task = workbench.make_task(room / "softmax", PLAIN, rows=ROWS, columns=COLUMNS)
        store = Store(given.results / "rejects.jsonl", about.machine.hash, task.hash, fresh=given.fresh)
        (room / "builds").mkdir(mode=0o711)
        judge = workbench.make_judge(task, walls, room / "builds")
        begin(judge, store)
        costs = measured(judge, store, room, given.repeats)
        bars = tuple(bar(kind, found, costs[0]) for kind, found in zip(KINDS, costs[1:], strict=True))
        workbench.write(given.results / "rejects.json", Result(workbench.finished(about), task.hash, cores, costs, bars))
        return workbench.settled(bars)


def main(arguments: list[str] | None = None) -> int:
    parser = workbench.arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--cores", type=int, default=2)
    return workbench.called(parser, arguments, Given, run)


if __name__ == "__main__":
    sys.exit(main())
