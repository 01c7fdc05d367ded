"""`keepfast` itself on this card, as a user calls it, each command on a copy of its task in a repository of its own.

    python benchmarks/gpu/commands.py check [--tasks softmax,llama/rms_norm] [--seconds 240] [--out FOLDER] [--fresh]
    python benchmarks/gpu/commands.py run   [--tasks softmax] ...        the deck, for a lab book
    python benchmarks/gpu/commands.py e2e | e2e-aa [--tasks llama/attention_decode] ...

A unit is one command on one task; what it printed with --json is its line. `run` is interrupted when time is over, as with Ctrl-C once: it
ends after the experiment in flight; then `log`, `report` and the diffs of the branch are the lab book, OUT/run_TASK/. `e2e` is interrupted
too, and goes on in the next session with the cells of OUT/engine. A command that was killed, or that found the machine unfit (exit
code 5), is no result and is done again.

It writes OUT/commands.jsonl and commands.json. No bars.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import bench
import msgspec
import workbench
from bench import Book, Clock, Session
from msgspec import Struct

from keepfast import settings
from keepfast.device import nvidia
from keepfast.engine import shelf
from keepfast.errors import KeepfastError, MachineError, UsageError
from keepfast.walls.base import Walls

KEEPFAST = (sys.executable, "-m", "keepfast")
WHO = ("-c", "user.name=keepfast", "-c", "user.email=keepfast@keepfast.invalid", "-c", "commit.gpgsign=false")
VERBS = ("check", "run", "e2e", "e2e-aa")
TASKS = {"run": ("softmax",), "e2e": ("llama/attention_decode",), "e2e-aa": ("llama/attention_decode",)}  # check: all there are
LEAST_S = {"check": 20.0, "run": 150.0, "e2e": 60.0, "e2e-aa": 60.0}  # with less it is not begun
LAST_S = 60.0  # of a run: its last measurements of the champion
END_S = 45.0  # from an interrupt to the end of the experiment in flight
VOID = 5  # exit code: the machine stood in the way
KEPT_CHARS = 200_000  # of what a command printed


class Done(Struct, frozen=True):
    """A command that ended by itself. `said`: its JSON, cut where it is long; `last`: the end of what it told people."""

    verb: str
    task: str
    code: int
    seconds: float
    said: str
    last: str


class Summary(Struct, frozen=True):
    sessions: tuple[Session, ...]
    done: tuple[Done, ...]


class Given(bench.Given, frozen=True, kw_only=True):
    verb: str
    tasks: str


# --------------------------------------------------------------------------------------------- a repository


def repository(task: str, room: Path) -> Path:
    """A copy of the task's top folder, committed; the task in it."""
    top = task.split("/")[0]
    source = bench.ROOT / "examples/gpu" / top
    if not (bench.ROOT / "examples/gpu" / task / "task.toml").is_file():
        raise UsageError(f"no task `{task}` under examples/gpu")
    shutil.copytree(source, room / top, ignore=shutil.ignore_patterns("__pycache__", ".keepfast"))
    for argv in (("init", "-q", "-b", "main"), ("add", "-A"), (*WHO, "commit", "-q", "-m", "the start")):
        subprocess.run(["git", *argv], cwd=room, check=True, env=settings.git_environment(), stdin=subprocess.DEVNULL)
    return room / task


def environment() -> dict[str, str]:
    """Ours, with the package that this script runs from."""
    source = str(Path(workbench.__file__).resolve().parents[1] / "src")
    return settings.program_environment(source, eager=False)


def said(argv: Sequence[str], place: Path, seconds: float) -> tuple[int, str, str]:
    """Exit code, output and messages of a command, interrupted once after so many seconds. MachineError when that does not end it."""
    with subprocess.Popen(
        [*KEEPFAST, *argv], cwd=place, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = ended(process, seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def ended(process: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
    try:
        return process.communicate(timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        raise MachineError(f"did not end within {END_S:g} s of an interrupt") from None


# --------------------------------------------------------------------------------------------- a command


def done(verb: str, task: str, seconds: float, out: Path) -> Done:
    """One command. MachineError when it says nothing about the task."""
    with workbench.room() as room:
        place, began = repository(task, room), time.monotonic()
        with cells(room / task.split("/")[0] / ".keepfast" / shelf.FOLDER, out / shelf.FOLDER):
            code, text, told = said((*spoken(verb, seconds), str(place)), place, seconds)
        last = told.strip()[-2000:]
        if verb.startswith("e2e") and not text and time.monotonic() - began >= seconds:
            raise bench.Stop(f"{verb} {task}: time was over; it goes on with the cell it was at")
        if verb == "run":
            book(place, out / f"run_{task.replace('/', '_')}", (text, told))
        if code < 0 or code == VOID or (code and not text):
            raise MachineError(f"exit code {code}: {last[-400:] or text[-400:]}")
        return Done(verb, task, code, time.monotonic() - began, text[:KEPT_CHARS], last)


@contextmanager
def cells(here: Path, kept: Path) -> Iterator[None]:
    """Inside, the cells of interrupted proofs lie where keepfast keeps them."""
    if kept.is_dir():
        shutil.copytree(kept, here)
    try:
        yield
    finally:
        shutil.rmtree(kept, ignore_errors=True)
        if here.is_dir():
            shutil.copytree(here, kept)


def spoken(verb: str, seconds: float) -> tuple[str, ...]:
    """The words after `keepfast`. A run gets a budget of hours that lets it end by itself, with its last measurements."""
    if verb == "run":
        return ("run", "--proposer", "deck", "--hours", f"{max(seconds - LAST_S, LAST_S) / 3600:.4f}", "--json")
    return ("e2e", "--aa", "--json") if verb == "e2e-aa" else (verb, "--json")


def book(place: Path, out: Path, printed: tuple[str, str]) -> None:
    """The lab book: what the run printed, its log and report as JSON, the page, and the diff of every keep."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "run.json").write_text(printed[0])
    (out / "run.txt").write_text(printed[1])
    for name, argv in {
        "log.json": ("log", "--newest", "0", "--json"),
        "report.json": ("report", "--json", "--output", str(out / "report.html")),
    }.items():
        found = subprocess.run(
            [*KEEPFAST, *argv], cwd=place, env=environment(), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        (out / name).write_text(found.stdout or found.stderr)
    diffs = ("git", "log", "--all", "--reverse", "--patch", "--format=commit %h%n%n%B")
    found = subprocess.run(diffs, cwd=place, env=settings.git_environment(), capture_output=True, text=True, check=False)
    (out / "keeps.diff").write_text(found.stdout.partition("\ncommit ")[2][:2_000_000])  # without the start itself


def measured(given: Given, book_: Book, clock: Clock) -> None:
    for task in tasks(given):
        key = f"{given.verb} {task}"
        if book_.done_with(key):
            continue
        if clock.left < LEAST_S[given.verb] or not clock.room(given.verb, LEAST_S[given.verb]):
            return
        with clock.counted(given.verb):
            found = book_.once(key, Done, lambda: done(given.verb, task, room(given.verb, clock), given.out))  # noqa: B023  called at once
        if found is not None:
            print(line(found), flush=True)


def room(verb: str, clock: Clock) -> float:
    """Seconds after which a command is interrupted."""
    return clock.left - (END_S if verb == "run" else 5.0)


def tasks(given: Given) -> list[str]:
    return [name for name in given.tasks.split(",") if name] or list(wanted(given.verb))


def wanted(verb: str) -> tuple[str, ...]:
    """The tasks of a command: those below examples/gpu, folder by folder, where none are named."""
    top = bench.ROOT / "examples/gpu"
    found = sorted(path.parent.relative_to(top).as_posix() for depth in ("*", "*/*") for path in top.glob(f"{depth}/task.toml"))
    return TASKS.get(verb) or tuple(sorted(found, key=lambda name: (name.count("/"), name)))


# --------------------------------------------------------------------------------------------- what they say


def line(found: Done) -> str:
    return f"  {found.verb} {found.task}: exit code {found.code}, {found.seconds:.0f} s  {' '.join(words(found.said))}"


def words(text: str) -> Iterator[str]:
    """What a human looks for first in a command's JSON."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return
    verdict = found.get("verdict") if isinstance(found, dict) else None
    if isinstance(verdict, dict):
        yield from (str(verdict.get(name, "")) for name in ("kind", "reason", "detail"))
    elif isinstance(found, dict):
        yield from (
            f"{name} {found[name]}"
            for name in ("outcome", "sd", "mean", "state", "experiments")
            if isinstance(found.get(name), str | float | int)
        )


def session(card: nvidia.Card) -> Session:
    """As bench.Desk.session, without a judge of our own: commands have theirs."""
    return bench.session(nvidia.fingerprint(Walls.detect().strength, card.uuid))


def run(given: Given) -> int:
    clock = Clock(given.seconds)
    if given.seconds > 0:
        card = nvidia.choose(given.card or settings.visible_gpu() or None)
        book_ = Book(given, "commands", session(card))
        os.environ["CUDA_VISIBLE_DEVICES"] = card.visible  # what `keepfast` chooses its card by
        try:
            measured(given, book_, clock)
        except (bench.Stop, KeepfastError) as error:
            print(f"ended early: {error}", file=sys.stderr, flush=True)
    else:
        book_ = Book(given, "commands", None)
    found = Summary(book_.sessions(), tuple(d for verb in VERBS for d in book_.all(f"{verb} ", Done).values()))
    for one in found.done:
        print(line(one))
    return bench.summary(book_, found, (), "commands")


def main(arguments: list[str] | None = None) -> int:
    parser = bench.arguments(__doc__, 240.0)
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("--tasks", default="", help="folders under examples/gpu, with commas")
    return bench.called(parser, arguments, Given, run)


if __name__ == "__main__":
    sys.exit(main())
