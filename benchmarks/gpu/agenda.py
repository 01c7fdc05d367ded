"""Whatever is still missing on the GPU, in order of worth, in the time that there is, on every card that there is.

    python benchmarks/gpu/agenda.py --list                          steps, how much of each is done, expected seconds; needs no GPU
    python benchmarks/gpu/agenda.py [--seconds 540] --out FOLDER    one piece of work; FOLDER/results.tar.gz is all that there is then
    python benchmarks/gpu/agenda.py --from FOLDER [--from ...] ...  what came back before comes first, into --work
    python benchmarks/gpu/agenda.py --from FOLDER --seconds 0       sums up, without a GPU: unpacks into --work, writes every summary
                                    [--steps aa,gains] [--cards 1] [--work FOLDER]

A step is a process of its own with a share of the time; what it finishes is on disk at once (--work, by default benchmarks/results/gpu),
so a step that fails, hangs or is killed loses one unit and nobody else's. Steps take turns until time is over; the bundle is written anew
after each, and every half minute. With two cards there are two streams of steps: clocks are those of one card each, host cores are plenty,
and agenda.jsonl says what ran beside what. Steps that look for one another's processes never run beside each other.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import bench
import bundle
import msgspec
from msgspec import Struct
from steps import Step, broken, counted, steps

from keepfast import settings
from keepfast.device import nvidia
from keepfast.errors import KeepfastError, UsageError

GRACE_S = 20.0  # that a step may take beyond its share, to end its unit and sum up
LEAVE_S = 8.0  # from an interrupt to the end of a process
LAST_S = 12.0  # of all the time: to stop, count and pack
BUNDLE_S = 30.0
PREPARE_S = 60.0
LOOK_S = 0.25
LOG = "agenda.jsonl"


class Turn(Struct, frozen=True):
    """One start of a step. Times in seconds since the epoch; `beside`: steps that ran on the other cards meanwhile."""

    step: str
    card: str
    began: float
    seconds: float
    share: float
    status: int | None  # None: it was ended by us
    before: int
    after: int
    of: int
    beside: tuple[str, ...] = ()


class Running:
    """A step's process, in a session of its own, its output in WORK/logs."""

    def __init__(self, step: Step, card: str, share: float, work: Path) -> None:
        self.step, self.card, self.share, self.began = step, card, share, time.time()
        self.beside: set[str] = set()
        self.deadline = time.monotonic() + share + (0.0 if step.whole else GRACE_S)
        path = work / bundle.LOGS / f"{step.name.replace(' ', '_').replace('/', '_')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            log.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {card}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                step.argv(share, card, work), cwd=bench.ROOT, env=environment(card), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def late(self, end: float) -> bool:
        return time.monotonic() > min(self.deadline, end)

    def stop(self) -> None:
        """As Ctrl-C would, then for good, with all that it has started in its session."""
        for number, wait_s in ((signal.SIGINT, LEAVE_S), (signal.SIGKILL, LEAVE_S)):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(wait_s)
                return
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue


def environment(card: str) -> dict[str, str]:
    """Ours, with this checkout first and one card to see."""
    source = os.pathsep.join((str(bench.ROOT / "src"), str(bench.ROOT)))
    only = {"CUDA_VISIBLE_DEVICES": card} if card else {}
    return settings.program_environment(source, eager=False) | {"PYTHONUNBUFFERED": "1"} | only


# --------------------------------------------------------------------------------------------- one piece of work


class Agenda:
    """Turns of steps on cards until `end`, by the monotonic clock."""

    def __init__(self, todo: Sequence[Step], cards: Sequence[str], work: Path, out: Path | None, end: float) -> None:
        self.todo, self.cards, self.work, self.out, self.end = tuple(todo), tuple(cards), work, out, end
        self.began, self.packed = time.monotonic(), time.monotonic()
        self.running: dict[str, Running] = {}
        self.known = {step.name: counted(step, work) for step in todo}
        self.turns = turns(work)
        self.idle: set[str] = set()  # steps whose last turn brought nothing

    def run(self) -> None:
        try:
            while self._begun() or self.running:
                self._looked()
                if time.monotonic() - self.packed > BUNDLE_S:
                    self.pack()
                time.sleep(LOOK_S)
        finally:
            for card in tuple(self.running):
                self._ended(card, stopped=True)
            self.pack()

    def _begun(self) -> bool:
        """Give every card that has none a step. Whether any was begun."""
        found = False
        for card in self.cards:
            if card not in self.running and (step := self._next()) is not None:
                share = min(step.share if not step.whole else self._left() - GRACE_S, self._left() - GRACE_S / 2)
                self._say(f"{step.name} begins on {card[:12]}, {share:.0f} s")
                try:
                    self.running[card] = Running(step, card, share, self.work)
                except OSError as error:
                    self._say(f"{step.name} did not start: {error}")
                    self.idle.add(step.name)
                found = True
        for one in self.running.values():
            one.beside |= {other.step.name for other in self.running.values() if other is not one}
        return found

    def _next(self) -> Step | None:
        """The step that has had least of its share so far, the first of those, among those with something to do that may run now."""
        now = {one.step.name for one in self.running.values()}
        taken = {one.step.apart for one in self.running.values() if one.step.apart}
        fit = [s for s in self.todo if s.name not in now | self.idle and s.apart not in taken and self._fits(s)]
        return min(fit, key=lambda s: round(self.turns[s.name] / s.share, 1), default=None)

    def _fits(self, step: Step) -> bool:
        needed = step.seconds if step.whole else step.least
        return self._left() - GRACE_S / 2 >= needed and step.left(*self.known[step.name]) > 0

    def _left(self) -> float:
        return self.end - time.monotonic()

    def _looked(self) -> None:
        for card, one in tuple(self.running.items()):
            if one.process.poll() is not None:
                self._ended(card, stopped=False)
            elif one.late(self.end):
                one.stop()
                self._ended(card, stopped=True)

    def _ended(self, card: str, *, stopped: bool) -> None:
        one = self.running.pop(card)
        if one.process.poll() is None:
            one.stop()
        before = self.known[one.step.name][0]
        self.known = {step.name: counted(step, self.work) for step in self.todo}  # of all: one step may do some of another's work
        after, of = self.known[one.step.name]
        status = None if stopped else one.process.returncode
        turn = Turn(
            one.step.name, card, one.began, time.time() - one.began, one.share, status, before, after, of, tuple(sorted(one.beside))
        )  # fmt: skip
        with (self.work / LOG).open("ab") as log:
            log.write(msgspec.json.encode(turn) + b"\n")
        self.turns[one.step.name] += turn.seconds
        if after <= before:
            self.idle.add(one.step.name)  # it would bring nothing again
        how = "stopped" if stopped else f"exit code {status}"
        self._say(f"{turn.step} on {card[:12]}: {how} after {turn.seconds:.0f} s, {after} of {of} done")
        self.pack()

    def pack(self) -> None:
        self.packed = time.monotonic()
        if self.out is None:
            return
        try:
            bundle.pack(self.work, self.out)
        except OSError as error:
            self._say(f"the bundle was not written: {error}")

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:4.0f} s] {text}", flush=True)


def turns(work: Path) -> defaultdict[str, float]:
    """Seconds that each step has had, in earlier pieces too."""
    found: defaultdict[str, float] = defaultdict(float)
    path = work / LOG
    for text in path.read_bytes().splitlines() if path.exists() else ():
        with suppress(msgspec.MsgspecError):
            turn = msgspec.json.decode(text, type=Turn)
            found[turn.step] += turn.seconds
    return found


def prepared(work: Path) -> None:
    """What every step needs is compiled and read from disk once, by `keepfast doctor`, before any of them is in a hurry."""
    path = work / bundle.LOGS / "doctor.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        argv = (sys.executable, "-m", "keepfast", "doctor")
        try:
            subprocess.run(argv, cwd=bench.ROOT, env=environment(""), stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=PREPARE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"doctor: {error}", file=sys.stderr, flush=True)


# --------------------------------------------------------------------------------------------- what there is


def table(todo: Sequence[Step], work: Path) -> str:
    """What is done and what is missing, and how long that should take on one card."""
    rows = [("step", "done", "of", "seconds left", "a turn")]
    left = 0.0
    for step in todo:
        done, of = counted(step, work)
        seconds = step.left(done, of)
        left += seconds
        rows.append((step.name, str(done), str(of), f"{seconds:.0f}" if seconds else "-", f"{step.share:.0f}"))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, f"about {left:.0f} s are missing, on one card", *broken(work)])


def summed(work: Path) -> None:
    """Every script's summary from what is there, and decisions drawn anew; what has nothing to say is left out."""
    for words in (
        *(f"benchmarks/gpu/{n}.py --seconds 0" for n in ("aa", "gains", "judging", "plans", "kernels")),
        "benchmarks/gpu/resample.py",
    ):
        subprocess.run((sys.executable, *words.split(), "--out", str(work)), cwd=bench.ROOT, env=environment(""), check=False)
    argv = (sys.executable, "benchmarks/gpu/commands.py", "check", "--seconds", "0", "--out", str(work))
    subprocess.run(argv, cwd=bench.ROOT, env=environment(""), check=False)


def chosen(words: str, cards: int) -> tuple[Step, ...]:
    known = steps(cards)
    wanted = [word.strip() for word in words.split(",") if word.strip()]
    if unknown := [w for w in wanted if w not in {s.name.split()[0] for s in known} | {s.name for s in known}]:
        raise UsageError(f"no step `{unknown[0]}`; there are {', '.join(s.name for s in known)}")
    return tuple(s for s in known if not wanted or s.name in wanted or s.name.split()[0] in wanted)


def run(given: argparse.Namespace) -> int:
    began = time.monotonic()
    for source in given.sources:
        print(f"{bundle.unpack(source, given.work)} files from {source}", flush=True)
    if given.list or given.seconds <= 0:
        if not given.list:
            summed(given.work)
        print(table(chosen(given.steps, 1), given.work))
        return 0
    given.work.mkdir(parents=True, exist_ok=True)
    cards = [card.uuid for card in nvidia.cards()][: given.cards]
    todo = chosen(given.steps, len(cards))
    prepared(given.work)
    Agenda(todo, cards, given.work, given.out, began + given.seconds - LAST_S).run()
    text = table(todo, given.work)
    print(text, flush=True)
    if given.out is not None:
        (given.out / "agenda.txt").write_text(text + "\n")
        bundle.pack(given.work, given.out)
    return 0


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=540.0, help="all of it, the bundle included; 0: sum up, without a GPU")
    parser.add_argument("--out", type=Path, default=None, help="folder for the bundle")
    parser.add_argument("--from", dest="sources", type=Path, action="append", default=[], help="an earlier --out, or its results.tar.gz")
    parser.add_argument("--work", type=Path, default=bench.RESULTS, help="folder that steps write into")
    parser.add_argument("--steps", default="", help="some of them, with commas")
    parser.add_argument("--cards", type=int, default=8, help="at most so many cards")
    parser.add_argument("--list", action="store_true", help="what is done and what is missing; starts nothing")
    given = parser.parse_args(words)
    given.work = given.work.resolve()
    try:
        return run(given)
    except KeepfastError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
