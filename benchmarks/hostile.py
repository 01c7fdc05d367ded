"""A hundred and more hostile candidates in a row, through CpuJudge.evaluate: is every verdict right, and the machine as it was?

    python benchmarks/hostile.py [--only fork_bomb] [--count N] [--quick] [--shared] [--fresh]

The corpus is hostile/*.c at every place where each attack can be tried (attacks.py). After each candidate: no process that started
since, no new file outside the judge's own folders (/tmp, /var/tmp, /dev/shm, the home folder and this repository are looked at), free
memory back within 64 MB, no System V object, and the judge's own descriptors, threads, cores and signals as they were (watch.py). At
the end an honest kernel must still be judged honestly. Bar: all of them. Exit 1 when one is missed.

`--shared` is for a machine on which other people work: then files and memory of others do not count. `--quick` leaves out what takes
ten seconds and more. Killed, it goes on where it was; it writes benchmarks/results/hostile.jsonl and hostile.json.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import workbench
from attacks import Attack, Places, corpus, files_of, places_of, wrong
from msgspec import Struct
from shapes import Shape, source
from watch import Watch
from workbench import About, Bar, Store, candidate

from keepfast.judge.judge import CpuJudge
from keepfast.materialise import tree_hash
from keepfast.model import Calibration, Candidate, Kind, Reason
from keepfast.walls.base import Walls

ROWS, COLUMNS = 24, 512
LEAST = 100
NOISE = 0.02  # SD between rounds
HONEST = (Kind.KEEP, Kind.REVERT)


class Outcome(Struct, frozen=True):
    """What came of one candidate. `wrong`: why the verdict is not right. `left`: what was left behind."""

    name: str
    site: str
    reason: Reason
    detail: str
    seconds: float
    wrong: str
    left: tuple[str, ...]


def well(found: Outcome) -> bool:
    return not found.wrong and not found.left


class Result(Struct, frozen=True):
    about: About
    task: str
    shared: bool
    reasons: dict[str, int]
    kinds: int
    outcomes: tuple[Outcome, ...]
    honest: str
    bars: tuple[Bar, ...]


class Given(Struct, frozen=True):
    """The command line."""

    only: str
    count: int
    quick: bool
    shared: bool
    fresh: bool
    results: Path


def made(attack: Attack, places: Places, n: int) -> Candidate:
    files = files_of(attack, places)
    return Candidate(files, tree_hash(files), "", n)


def outcome(judge: CpuJudge, watch: Watch, attack: Attack, one: Candidate, champion: Candidate) -> Outcome:
    began = time.perf_counter()
    verdict = judge.evaluate(one, champion, ())
    seconds = time.perf_counter() - began
    return Outcome(attack.name, attack.site, verdict.reason, verdict.detail, seconds, wrong(attack, verdict), watch.left())


def chosen(given: Given) -> tuple[Attack, ...]:
    found = tuple(a for a in corpus() if given.only in a.name and not (given.quick and a.slow))
    return found[: given.count] if given.count else found


def in_a_row(judge: CpuJudge, store: Store, watch: Watch, attacks: tuple[Attack, ...], champion: Candidate) -> list[Outcome]:
    found, places = [], places_of(judge.task.folder)
    for n, attack in enumerate(attacks):
        one = made(attack, places, n + 1)
        # The text names paths and a process id, which are others at the next start: what it was made from is the key.
        key = f"{attack.title} {tree_hash(files_of(attack, Places('', '', '', 0)))[:12]}"
        done = store.once(key, Outcome, lambda: outcome(judge, watch, attack, one, champion), good=well)  # noqa: B023  called at once
        found.append(done)
        mark = "ok" if well(done) else "WRONG"
        print(f"  {n + 1:>3} {attack.title:<44} {done.seconds:5.1f} s  {mark:<5} {done.reason}  {done.detail[:90]}", flush=True)
        for line in (done.wrong, *done.left):
            if line:
                print(f"      {line}", flush=True)
    return found


def bars(outcomes: list[Outcome], wanted: int, honest: tuple[str, bool]) -> tuple[Bar, ...]:
    total, right, clean = len(outcomes), sum(not o.wrong for o in outcomes), sum(not o.left for o in outcomes)
    return (
        Bar("hostile candidates", f"{wanted}", f"{total} of {len({o.name for o in outcomes})} kinds", total >= wanted),
        Bar("right verdicts", f"{total}", f"{right}", right == total),
        Bar("nothing left behind", f"{total}", f"{clean}", clean == total),
        Bar("honest kernel afterwards", "keep or revert", honest[0], honest[1]),
    )


def begin(judge: CpuJudge, champion: Candidate) -> None:
    """The champion checked, and noise assumed: nothing is claimed about gains here."""
    known = Calibration(judge.bench.machine.hash, NOISE, 0.0, 0.0, (("timed", NOISE),), 0, 0.0, 0.0, time.time())
    workbench.passed(judge.ready(champion, known))


def honest_one(judge: CpuJudge, champion: Candidate, shared: bool) -> tuple[str, bool]:
    """The verdict on the champion's own work in another shape, and whether it is an honest one."""
    found = judge.evaluate(candidate(source(Shape(walk="blocks", entry="pieces"))), champion, ())
    return f"{found.kind}: {found.reason}", found.kind in HONEST or (shared and found.kind is Kind.VOID)


def watched() -> tuple[Path, ...]:
    repository = Path(__file__).resolve().parents[1]
    return (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path(os.path.expanduser("~")), repository)


def run(given: Given) -> int:
    walls = Walls.detect()
    about = workbench.about(walls.strength)
    workbench.introduce(about)
    with workbench.room() as room:
        tempfile.tempdir = str(room)  # the judge's own folders lie here, and all else counts as outside
        champion = candidate(source(Shape()))
        task = workbench.make_task(room / "softmax", source(Shape()), rows=ROWS, columns=COLUMNS)
        store = Store(given.results / "hostile.jsonl", about.machine.hash, task.hash, fresh=given.fresh)
        (room / "builds").mkdir(mode=0o711)
        judge = workbench.make_judge(task, walls, room / "builds")
        begin(judge, champion)
        attacks = chosen(given)
        outcomes = in_a_row(judge, store, Watch(room, watched(), shared=given.shared), attacks, champion)
        honest = honest_one(judge, champion, given.shared)
        found = bars(outcomes, len(attacks) if given.only or given.count else LEAST, honest)
        counts = dict(Counter(o.reason.value for o in outcomes).most_common())
        kinds = len({o.name for o in outcomes})
        result = Result(workbench.finished(about), task.hash, given.shared, counts, kinds, tuple(outcomes), honest[0], found)
        workbench.write(given.results / "hostile.json", result)
        print(f"verdicts {', '.join(f'{n} {reason}' for reason, n in counts.items())}")
        return workbench.settled(found)


def main(arguments: list[str] | None = None) -> int:
    parser = workbench.arguments(__doc__)
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    parser.add_argument("--count", type=int, default=0, help="so many, the first of the corpus")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--shared", action="store_true")
    return workbench.called(parser, arguments, Given, run)


if __name__ == "__main__":
    sys.exit(main())
