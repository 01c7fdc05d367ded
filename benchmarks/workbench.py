"""What the benchmark scripts share: finished items on disk, a judge on a task of their own, bars, and how results are written.

Owns the record that lets a script go on where it was killed. Must not know what any script measures.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from keepfast import __version__, shop
from keepfast.device import cpu
from keepfast.errors import KeepfastError, MachineError
from keepfast.judge.contents import Library
from keepfast.judge.judge import Bench, CpuJudge
from keepfast.materialise import tree_hash
from keepfast.model import Calibration, Candidate, Event, Fact, File, Machine, Task, Verdict
from keepfast.task.load import load
from keepfast.walls.base import Walls

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
ENTRY = "kernel/kernel.c"
TASK = """\
schema = 1
title = "row softmax, float32, one timed case"
signature = "softmax(Tensor x) -> Tensor"
languages = ["c"]
entry = "kernel/kernel.c:kernel"
editable = ["kernel/**"]
axes = ["m", "n"]
threads = 1

[[case]]
name = "timed"
m = {rows}
n = {columns}

[[case]]
name = "small"
m = 23
n = 7
use = "correct"

[build]
flags = ["-O2"]

[tolerance]
reduction = "n"
"""
REFERENCE = '''\
"""Row softmax: what the kernel must compute, and on what."""

import numpy as np


def inputs(case, rng):
    """x[m, n] in float32."""
    return {"x": np.float32(2.0) * rng.standard_normal((case.m, case.n), dtype=np.float32)}


def reference(x):
    """Softmax of each row, in the dtype of x."""
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)
'''

T = TypeVar("T")


# --------------------------------------------------------------------------------------------- what is finished


class Line(Struct, frozen=True):
    """One finished item. Only those of the same machine and task are read back."""

    machine: str
    task: str
    key: str
    item: msgspec.Raw


class Store:
    """Finished items as JSON lines, each on disk before the next begins."""

    def __init__(self, path: Path, machine: str, task: str, *, fresh: bool = False) -> None:
        self.path, self.machine, self.task = path, machine, task
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        path.touch()
        self.known = {line.key: line.item for line in self._lines() if (line.machine, line.task) == (machine, task)}

    def find(self, key: str, kind: type[T]) -> T | None:
        """The item that was finished under this key, or None."""
        raw = self.known.get(key)
        return None if raw is None else msgspec.json.decode(raw, type=kind)

    def add(self, key: str, item: object) -> None:
        raw = msgspec.Raw(msgspec.json.encode(item))
        self.known[key] = raw
        with self.path.open("ab") as out:
            out.write(msgspec.json.encode(Line(self.machine, self.task, key, raw)) + b"\n")
            out.flush()
            os.fsync(out.fileno())

    def once(self, key: str, kind: type[T], make: Callable[[], T], *, good: Callable[[T], bool] = lambda found: True) -> T:
        """The finished item, or a new one made, stored and handed back. What is not `good` is made again at the next start."""
        found = self.find(key, kind)
        if found is None or not good(found):
            found = make()
            self.add(key, found)
        return found

    def _lines(self) -> Iterator[Line]:
        """What can be read; a line that was cut off when the script was killed is closed and left out."""
        text = self.path.read_bytes()
        if text and not text.endswith(b"\n"):
            with self.path.open("ab") as out:
                out.write(b"\n")
        for line in text.splitlines():
            try:
                yield msgspec.json.decode(line, type=Line)
            except msgspec.MsgspecError:
                print(f"{self.path}: a line that is no item is left out", file=sys.stderr)


# --------------------------------------------------------------------------------------------- a judge on a task of our own


def make_task(folder: Path, kernel: str, *, rows: int, columns: int) -> Task:
    """Writes the row softmax task with this start kernel into an empty folder, and reads it as keepfast does."""
    (folder / "kernel").mkdir(parents=True)
    (folder / "task.toml").write_text(TASK.format(rows=rows, columns=columns))
    (folder / "reference.py").write_text(REFERENCE)
    (folder / ENTRY).write_text(kernel)
    return load(folder)


def candidate(source: str, *others: File, n: int = 0) -> Candidate:
    """The task's kernel with this source, and whatever other files."""
    files = (File(ENTRY, source.encode()), *others)
    return Candidate(files, tree_hash(files), "", n)


@contextmanager
def room(prefix: str = "keepfast-bench-") -> Iterator[Path]:
    """A temporary folder that other users may pass, as walled processes must."""
    folder = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ignore(event: Event) -> None:
    """For a judge whose progress nobody watches."""


def make_judge(task: Task, walls: Walls, builds: Path) -> CpuJudge:
    """A judge as `run` has it, for a task without baselines and limits; it knows no earlier code."""
    bench = Bench(task, walls, cpu.fingerprint(walls.strength), Library(), builds, lambda code: None, ignore, shop.fresh())
    return CpuJudge(bench)


def begin(judge: CpuJudge, start: Candidate, store: Store) -> Calibration:
    """The start checked; this machine's noise measured, or taken from an earlier start of the script."""
    passed(judge.ready(start, store.find("calibration", Calibration)))
    found = judge.calibrated()
    remember(store, found)
    return found


def passed(verdict: Verdict) -> None:
    if not verdict.kept:
        raise MachineError(f"the start kernel does not pass: {verdict.detail}", next_step="keepfast doctor")


def remember(store: Store, calibration: Calibration) -> None:
    if calibration != store.find("calibration", Calibration):
        store.add("calibration", calibration)


# --------------------------------------------------------------------------------------------- what is printed and written


class About(Struct, frozen=True):
    """Where, when and how results came about."""

    machine: Machine
    versions: tuple[Fact, ...]
    date: str
    command: str
    load_before: float  # of the machine, over a minute
    load_after: float = 0.0


class Bar(Struct, frozen=True):
    """What was asked for, and what was found."""

    name: str
    asked: str
    found: str
    ok: bool


def command(folder: str = "benchmarks") -> str:
    """This script's command line as one would type it in a checkout: of paths of this machine only what is below it, or the last part."""

    def word(given: str) -> str:
        path = Path(given)
        if not path.is_absolute():
            return given
        return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name

    return shlex.join(["python", f"{folder}/{Path(sys.argv[0]).name}", *map(word, sys.argv[1:])])


def about(walls: str) -> About:
    others = (Fact("keepfast", __version__), Fact("numpy", version("numpy")), Fact("msgspec", version("msgspec")))
    versions = (Fact("python", platform.python_version()), *others)
    return About(cpu.fingerprint(walls), versions, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), command(), os.getloadavg()[0])


def finished(found: About) -> About:
    """The same, with the load after the work."""
    return replace(found, load_after=os.getloadavg()[0])


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """The options that every script has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier start has finished")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for what is written")
    return parser


G = TypeVar("G", bound=Struct)


def called(parser: argparse.ArgumentParser, words: list[str] | None, given: type[G], run: Callable[[G], int]) -> int:
    """Run a script with what the command line says as a `given`; its exit code. An error for people is printed as one message."""
    try:
        return run(given(**vars(parser.parse_args(words))))
    except KeepfastError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def introduce(found: About) -> None:
    m = found.machine
    versions = ", ".join(f"{v.name} {v.value}" for v in found.versions)
    print(f"machine  {m.cpu}, {m.cores} cores, Linux {m.kernel}, {m.compiler}, walls {m.walls}\nwith     {versions}", flush=True)


def write(path: Path, result: Struct) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    print(f"written  {path}")


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as they need, the first row being the head."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def settled(bars: Sequence[Bar]) -> int:
    """Prints the bars; 0 when all hold, else 1."""
    rows = [("", "asked", "found", ""), *((b.name, b.asked, b.found, "ok" if b.ok else "MISSED") for b in bars)]
    print("\n" + table(rows), flush=True)
    return int(not all(b.ok for b in bars))
