"""False keeps in decisions resampled from rounds that were recorded on a GPU; benchmarks/resample.py does the drawing. Needs no GPU.

    python benchmarks/gpu/resample.py [--decisions 10000] [--seed 1] [--out FOLDER]

Reads aa.jsonl and gains.jsonl in FOLDER. Of every no-op the rounds of screen and first test count, whatever they showed; of an A/A run all
rounds, each pair of captures being one change of no effect. Each set of rounds is written as FOLDER/NAME_rounds.json, a recording as
benchmarks/resample.py reads it, and decided in its two ways. An A/A task that has no calibration of its own gets one from its rounds.
It writes FOLDER/resample.json. Bar: at most 0.001 false keeps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aa
import bench
import gains
import msgspec
import workbench
from bench import Bar, Book, Given
from msgspec import Struct

from keepfast.errors import KeepfastError, UsageError
from keepfast.judge import calibrate
from keepfast.model import Calibration, Machine

drawing = bench.above("resample")
Evaluation, Recording = drawing.Evaluation, drawing.Recording
LEAST = 8  # rounds of a recording


class Summary(Struct, frozen=True):
    reports: tuple[Any, ...]  # drawing.Report
    bars: tuple[Bar, ...]


def recordings(out: Path) -> Iterator[tuple[str, Any]]:
    """Name and recording of every set that has enough rounds."""
    given = Given(seconds=0.0, out=out, fresh=False, card="")
    found = [*noops(Book(given, "gains", None, gains.digest())), *same(Book(given, "aa", None))]
    yield from ((name, one) for name, one in found if sum(len(e.rounds) for e in one.evaluations) >= LEAST)


def noops(book: Book) -> Iterator[tuple[str, Any]]:
    items = [i for i in book.all(f"{gains.NOOP} ", gains.Item).values() if len(gains.full(i)) >= 2]
    if items:
        made = tuple(Evaluation(i.calibration, gains.full(i), i.dress) for i in items)
        yield "noops", Recording(machine(book), made, "RMSNorm 8000 x 4096, no-ops")


def same(book: Book) -> Iterator[tuple[str, Any]]:
    for name in aa.TASKS:
        found = list(book.all(aa.prefix(name), aa.Measured).values())
        captures = dict.fromkeys(m.capture for m in found)
        groups = [[m for m in found if m.capture == capture] for capture in captures]
        groups = [g for g in groups if len(g) > 1]
        if groups:
            known = calibration(book, groups)
            made = tuple(Evaluation(known, tuple(bench.plain(m.round) for m in g), f"captured again, {g[0].capture}") for g in groups)
            yield f"aa_{name}", Recording(machine(book), made, f"{name}, the start against itself")


def calibration(book: Book, groups: list[list[aa.Measured]]) -> Calibration:
    """As the judge takes one: sigma from rounds of the same captures, layout from how captures differ."""
    first, calls = max(groups, key=len), groups[0][0].calls
    rounds = [[m.round for m in g] for g in groups]
    return calibrate.found(machine(book).hash, [m.round for m in first], rounds if len(rounds) > 1 else [], calls)


def machine(book: Book) -> Machine:
    sessions = book.sessions()
    if not sessions:
        raise UsageError("no session is recorded", where=str(book.path), next_step=f"python benchmarks/gpu/{book.path.stem}.py")
    return sessions[-1].machine


def run(out: Path, decisions: int, seed: int) -> int:
    reports: list[Any] = []
    for name, recording in recordings(out):
        path = out / f"{name}_rounds.json"
        path.write_bytes(msgspec.json.encode(recording))
        reports.append(drawing.report(path, decisions, seed))
        print(drawing.text(reports[-1]) + "\n")
    if not reports:
        raise UsageError("no rounds are recorded", where=str(out), next_step="python benchmarks/gpu/gains.py")
    bars = tuple(
        Bar(f"{r.task}, {one.method}", f"at most {drawing.LIMIT}", f"{one.false_keeps} of {one.decisions}", one.rate <= drawing.LIMIT)
        for r in reports
        for one in r.results
    )
    workbench.write(out / "resample.json", Summary(tuple(reports), bars))
    return workbench.settled(bars)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=bench.RESULTS)
    given = parser.parse_args(words)
    try:
        return run(given.out, given.decisions, given.seed)
    except KeepfastError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
