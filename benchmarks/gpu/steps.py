"""What agenda.py works through: each step's command, how much of it is done by what lies in a folder, and what it is expected to take.

Owns order, guesses and progress. Needs no GPU. Must not know processes or clocks.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import aa
import bench
import commands
import gains
import judging
import kernels
import msgspec
import plans
from msgspec import Struct
from workbench import Line

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.gpu.shards import SHARDS, Ended

from keepfast.errors import KeepfastError
from keepfast.redteam import attempt
from keepfast.redteam.entries import entries, folders

NOOPS, GAINS, REPEATS, ROUNDS, PLANS = 40, 12, 3, 12, 60
CELLS = "8192x8,32768x4,131072x1,1024x1"  # of the best configuration
CORPUS = "redteam_gpu.jsonl"
Count = Callable[[Path], tuple[int, int]]


class Step(Struct, frozen=True):
    """`words` follow `python`; {seconds}, {card} and {work} in them are filled in. `seconds`: all of it; `share`: a turn's; `least`: with
    less it is not begun. `whole`: what is not ended is lost, so it begins only when all of it fits. `apart`: steps of one such name never
    run beside each other. `count`: units that are done, of all."""

    name: str
    words: tuple[str, ...]
    seconds: float
    share: float
    least: float
    count: Count
    apart: str = ""
    whole: bool = False

    def argv(self, seconds: float, card: str, work: Path) -> list[str]:
        return [sys.executable, *(word.format(seconds=f"{seconds:.0f}", card=card, work=work) for word in self.words)]

    def left(self, done: int, of: int) -> float:
        """Seconds that what is missing is expected to take."""
        return 0.0 if done >= of else max(self.least, self.seconds * (of - done) / of)


def steps(cards: int = 1) -> tuple[Step, ...]:
    """In order of worth. On two cards the two halves of the gains are steps of their own."""
    halves = ("1/2", "2/2") if cards > 1 else ("1/1",)
    return (
        script("aa", f"--rounds {ROUNDS}", 380, 380, 60, count_aa),
        Step(
            "tests", ("-m", "tests.gpu", "--seconds", "{seconds}", "--out", "{work}/tests", "--outcomes", f"{{work}}/{CORPUS}"),
            480, 480, 120, count_tests, apart="corpus",
        ),
        *(
            script("gains", f"--noops {NOOPS} --gains {GAINS} --part {half}", 960 / len(halves), 240, 110, part_of(half), half)
            for half in halves
        ),
        script("judging", f"--repeats {REPEATS}", 330, 190, 90, count_judging),
        script("plans", "", 330, 240, 90, count_plans),
        script("kernels", "", 560, 240, 70, count_kernels),
        Step(
            "redteam", ("-m", "keepfast", "redteam", "--gpu", "--out", f"{{work}}/{CORPUS}"),
            330, 200, 45, count_corpus, apart="corpus",
        ),
        search("best_config", 260, 260, compiled=False),
        script("commands", "e2e", 430, 300, 130, count_commands("e2e"), "e2e"),
        script("commands", "run", 260, 260, 190, count_commands("run"), "run"),
        script("commands", "e2e-aa", 150, 170, 80, count_commands("e2e-aa"), "e2e-aa"),
        script("commands", "check", 320, 200, 45, count_commands("check"), "check"),
        search("best_config compiled", 1100, 300, compiled=True),
    )  # fmt: skip


def script(name: str, words: str, seconds: float, share: float, least: float, count: Count, part: str = "", **more: object) -> Step:
    """One of this folder's resumable scripts."""
    label = {"1/1": name, "": name}.get(part, part if name == "commands" else f"{name} {part}")
    argv = (f"benchmarks/gpu/{name}.py", *words.split(), "--seconds", "{seconds}", "--card", "{card}", "--out", "{work}")
    return Step(label, argv, seconds, share, least, count, **more)  # type: ignore[arg-type]  # apart, whole


def search(name: str, seconds: float, share: float, *, compiled: bool) -> Step:
    """The best configuration without a kernel: what runs as it is, in every cell; then what is compiled as well, which takes minutes."""
    script = bench.above("e2e/best_config")
    arms = tuple(arm for arm in script.configurations() if compiled or arm.compile is None)
    names = ",".join(arm.name for arm in arms)
    words = ("benchmarks/e2e/best_config.py", "--cells", CELLS, "--arms", names, "--seconds", "{seconds}", "--out", "{work}")
    return Step(name, words, seconds, share, 110, count_cells(script, arms))


# --------------------------------------------------------------------------------------------- how much is done


def finished(work: Path, name: str, digest: str = "") -> set[str]:
    """Keys of a script's lines, of the label that was written last; a bench.Book that touches nothing."""
    path, task, found = work / f"{name}.jsonl", f"{name} {digest}".strip(), set()
    label = bench._last_label(path)
    for text in path.read_bytes().splitlines() if path.exists() else ():
        with suppress(msgspec.MsgspecError):
            line = msgspec.json.decode(text, type=Line)
            found |= {line.key} if (line.machine, line.task) == (label, task) else set()
    return found


def done(found: set[str], keys: Iterable[str]) -> tuple[int, int]:
    """Units that are finished, or failed as often as they are tried."""
    wanted = list(keys)
    return sum(key in found or f"{bench.FAILED}{bench.TRIES} {key}" in found for key in wanted), len(wanted)


def count_aa(work: Path) -> tuple[int, int]:
    return done(finished(work, "aa"), aa_keys())


@cache  # what is asked for does not change while a process runs, and reading all tasks takes a while
def aa_keys() -> tuple[str, ...]:
    return tuple(f"{aa.prefix(name)}{n}" for name in aa.DEFAULT.split(",") for n in range(ROUNDS))


def part_of(half: str) -> Count:
    units = gains.part(gains.units(NOOPS, GAINS), half)
    return lambda work: done(finished(work, "gains", gains.digest()), (u.key for u in units))


def count_judging(work: Path) -> tuple[int, int]:
    return done(finished(work, "judging"), (f"{case.name} {n}" for case in judging.KINDS for n in range(REPEATS)))


def count_plans(work: Path) -> tuple[int, int]:
    """The first so many kernels, in the script's own order: more than the 40 that are asked for."""
    return done(finished(work, "plans"), plan_keys())


@cache
def plan_keys() -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as room:
        return tuple(u.key for u in plans.every(plans.tasks_of("", Path(room)))[:PLANS])


def count_kernels(work: Path) -> tuple[int, int]:
    return done(finished(work, "kernels"), kernel_keys())


@cache
def kernel_keys() -> tuple[str, ...]:
    given = kernels.Given(seconds=0.0, out=Path(), fresh=False, card="", versions=(), rounds=3, only="", cases=1)
    return tuple(key for keys in kernels.pairs(given).values() for key, _, _ in keys)


def count_commands(verb: str) -> Count:
    return lambda work: done(finished(work, "commands"), (f"{verb} {task}" for task in commands.wanted(verb)))


def count_cells(script: ModuleType, arms: tuple[Any, ...]) -> Count:
    """Cells and groups of configurations that have an account, or a reason why there is none."""
    wanted = {(cell.name, tuple(a.name for a in group)) for cell in script._cells(CELLS, "decode") for group in script.groups(arms)}

    def count(work: Path) -> tuple[int, int]:
        path = work / "best_config.jsonl"
        found = set()
        for text in path.read_bytes().splitlines() if path.exists() else ():
            with suppress(msgspec.MsgspecError):
                item = msgspec.json.decode(text, type=script.Item)
                found.add((item.cell, item.arms))
        return len(wanted & found), len(wanted)

    return count


def count_corpus(work: Path) -> tuple[int, int]:
    """Entries for a GPU as they are now, that ended or passed; what the machine spoilt is missing."""
    path, wanted = work / CORPUS, corpus_keys()
    lines = attempt._lines(path) if path.exists() else ()
    return len(wanted & {line.outcome.key for line in lines if line.outcome.state != "void"}), len(wanted)


@cache
def corpus_keys() -> frozenset[str]:
    return frozenset(attempt.key(entry) for entry in entries(folders()) if entry.kind == "gpu")


def count_tests(work: Path) -> tuple[int, int]:
    """Shards that ended by themselves, whatever they found."""
    return sum(shard.whole for shard in shards(work)), len(SHARDS)


def shards(work: Path) -> Iterator[Ended]:
    """What is known of each."""
    for shard in SHARDS:
        path = work / "tests" / f"{shard.name}.json"
        with suppress(msgspec.MsgspecError):
            if path.exists():
                yield msgspec.json.decode(path.read_bytes(), type=Ended)


def broken(work: Path) -> Iterator[str]:
    """Tests that failed, units that failed and were not finished later, and answers to the corpus that are not as they should be."""
    yield from (f"test {name}: {why}" for shard in shards(work) for name, why in shard.failed)
    path = work / CORPUS
    lines = attempt._lines(path) if path.exists() else ()
    last = {line.outcome.key: line.outcome for line in lines if line.outcome.key in corpus_keys()}  # of entries as they are now
    yield from (f"corpus {o.id} {o.name}: {o.state}, {o.reason} in {o.layer}: {o.detail[:160]}" for o in last.values() if not o.good)
    for name, digest in (("aa", ""), ("gains", gains.digest()), ("judging", ""), ("plans", ""), ("kernels", ""), ("commands", "")):
        known = finished(work, name, digest)
        tried = sorted(key.removeprefix(f"{bench.FAILED}{n} ") for n in (1, 2) for key in known if key.startswith(f"{bench.FAILED}{n} "))
        yield from (f"{name} {key}: failed, see {name}.jsonl" for key in dict.fromkeys(tried) if key not in known)


def counted(step: Step, work: Path) -> tuple[int, int]:
    """Never an error: a count that cannot be made says that nothing is done."""
    try:
        return step.count(work)
    except (KeepfastError, OSError, ValueError) as error:
        print(f"{step.name}: {error}", file=sys.stderr)
        return 0, 1


__all__ = ["CORPUS", "Step", "broken", "counted", "steps"]
