"""One entry after the other, each by what answers its kind; what is finished is on disk before the next begins.

Owns the order, the record that a killed start goes on from, and what counts as done. Must not know how a kind is answered.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec import Struct

from keepfast import settings, shop
from keepfast.errors import KeepfastError, UsageError, nearest
from keepfast.redteam import cpu, gpu, origins, plans, proposals, rounds, tasks
from keepfast.redteam.entries import KINDS, Entry, Folders, entries
from keepfast.redteam.outcome import Found, Outcome, state
from keepfast.walls.base import Walls

Emit = Callable[[Outcome], None]
WALLED = ("plan", "cpu", "hostile")  # kinds whose right answers are those of full walls


class Wanted(Struct, frozen=True):
    """What to run. `only`: an id or a name; `quick`: what is short, and C without the clock; `out`: a file to append to and
    to go on from."""

    parts: tuple[str, ...] = ("cpu", "gpu")
    only: str = ""
    quick: bool = False
    out: Path | None = None


class Result(Struct, frozen=True):
    """All outcomes, those of an earlier start among them, and why a part of the corpus was left out."""

    outcomes: tuple[Outcome, ...]
    skipped: str
    seconds: float


def run(at: Folders, wanted: Wanted, walls: Walls, emit: Emit) -> Result:
    """Try what is wanted, one at a time: two at once would disturb each other's clocks."""
    began = time.monotonic()
    chosen = choose(entries(at), wanted)
    lack = shop.lack_of_gpu().partition("\n")[0] if any(e.kind == "gpu" for e in chosen) else "none is asked for"
    cpu_here, gpu_here = machine(walls), "" if lack else card(walls)
    done, found = _done(wanted.out, {cpu_here, gpu_here}), list[Outcome]()
    with Answers(at, walls, wanted.quick) as answers:
        for entry in chosen:
            if entry.kind == "gpu" and lack:
                continue
            one = done.get(key(entry, wanted.quick))
            if one is None or one.state == "void":
                one = answers.outcome(entry)
                _write(wanted.out, gpu_here if entry.kind == "gpu" else cpu_here, one)
            emit(one)
            found.append(one)
    count = sum(e.kind == "gpu" for e in chosen)
    skipped = f"{count} entries for a GPU: {lack}" if lack and count else ""
    return Result(tuple(found), skipped, time.monotonic() - began)


def choose(all_of_them: Sequence[Entry], wanted: Wanted) -> tuple[Entry, ...]:
    """The entries of the parts that are wanted. UsageError when `only` names none."""
    kinds = [kind for kind in KINDS if ("gpu" if kind == "gpu" else "cpu") in wanted.parts]
    found = tuple(e for e in all_of_them if e.kind in kinds and (e.quick or not wanted.quick) and wanted.only in ("", e.id, e.name))
    if not found:
        known = [word for e in all_of_them for word in (e.id, e.name)]
        step = "keepfast redteam --json   lists all ids; --gpu or --cpu may leave it out"
        raise UsageError(f"no entry `{wanted.only}`.{nearest(wanted.only, known)}", next_step=step)
    return found


class Answers:
    """What answers each kind, set up when the first of a kind is tried."""

    def __init__(self, at: Folders, walls: Walls, quick: bool = False) -> None:
        self.at, self.walls, self.quick, self._stack = at, walls, quick, ExitStack()
        self._made: dict[str, Callable[[Entry], Found]] = {}
        self._cpu: cpu.Stands | None = None

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def outcome(self, entry: Entry) -> Outcome:
        began = time.monotonic()
        found = self._found(entry)
        return Outcome(
            id=entry.id,
            name=entry.name,
            kind=entry.kind,
            language=entry.said.get("language", ""),
            honest=entry.honest,
            words=entry.words,
            state=state(entry, found),
            reason=found.reason,
            layer=found.layer,
            detail=found.detail,
            seconds=round(time.monotonic() - began, 2),
            open=entry.open,
            key=key(entry, self.quick),
        )

    def _found(self, entry: Entry) -> Found:
        if why := self._lack(entry):
            return Found(False, "not here", detail=why, void=True)
        try:
            return self._answer(entry.kind)(entry)
        except KeepfastError as error:  # the machine's, or ours: says nothing about the entry
            return Found(False, "machine", detail=error.what, void=True)
        except Exception as error:  # noqa: BLE001  a bug of ours is this entry's line, and those after it are tried
            return Found(False, "machine", detail=f"{type(error).__name__}: {str(error)[:300]}", void=True)

    def _lack(self, entry: Entry) -> str:
        if entry.kind in WALLED and self.walls.strength != "walls":
            return f"its answer is that of full walls, this machine has {self.walls.strength} (keepfast doctor)"
        return ""

    def _answer(self, kind: str) -> Callable[[Entry], Found]:
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: str) -> Callable[[Entry], Found]:
        if kind == "origin":
            return origins.verdict
        if kind == "task":
            return lambda entry: tasks.verdict(entry, self.at)
        if kind == "statistics":
            return lambda entry: rounds.verdict(entry, self.at)
        if kind in ("cpu", "hostile"):
            if self._cpu is None:
                self._cpu = cpu.Stands(self.at, self.walls)
                self._stack.callback(self._cpu.close)
            stands = self._cpu
            return lambda entry: stands.verdict(entry, self.quick)
        made: plans.Plans | proposals.Proposals | gpu.Stands
        made = plans.Plans(self.walls) if kind == "plan" else proposals.Proposals(self.at) if kind == "proposal" else gpu.Stands(self.at)
        self._stack.callback(made.close)
        return made.verdict


# --------------------------------------------------------------------------------------------- what is finished


class Line(Struct, frozen=True):
    machine: str
    outcome: Outcome


def key(entry: Entry, quick: bool = False) -> str:
    """Changes with the entry's text, and with how far up the ladder it was taken."""
    said = "\n".join(f"{name}: {value}" for name, value in entry.header)
    untimed = " untimed" if quick and entry.kind in ("cpu", "hostile") else ""
    return f"{entry.id} {hashlib.sha256((said + entry.source).encode()).hexdigest()[:12]}{untimed}"


def machine(walls: Walls) -> str:
    """What an outcome is only good for."""
    from keepfast import __version__
    from keepfast.device.cpu import fingerprint

    return f"{fingerprint(walls.strength).hash} {__version__}"


def card(walls: Walls) -> str:
    """The same for entries that a GPU answers: any card of this kind, driver and versions, whatever host it is in."""
    from keepfast import __version__
    from keepfast.device import nvidia, nvidia_software

    driver = ".".join(nvidia.drivers()[0].split(".")[:2])
    versions = " ".join(f"{name} {version}" for name, version in nvidia_software.versions() if version)
    return f"{nvidia.choose(settings.visible_gpu() or None).name} driver {driver} {versions} {walls.strength} {__version__}"


def _done(path: Path | None, here: Collection[str]) -> dict[str, Outcome]:
    """Outcomes of these machines and this version, by key; the last one counts. A line that was cut off is left out."""
    if path is None or not path.exists():
        return {}
    return {line.outcome.key: line.outcome for line in _lines(path) if line.machine in here}


def _lines(path: Path) -> Iterator[Line]:
    for text in path.read_bytes().splitlines():
        try:
            yield msgspec.json.decode(text, type=Line)
        except msgspec.MsgspecError:
            continue


def _write(path: Path | None, here: str, outcome: Outcome) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    cut = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("ab") as out:
        out.write((b"\n" if cut else b"") + msgspec.json.encode(Line(here, outcome)) + b"\n")
        out.flush()
        os.fsync(out.fileno())
