"""C candidates through the CPU judge, on tasks so small that a round takes half a second.

Owns the judges, one a task, each begun on the task's start; noise is assumed, not measured, for no gain is claimed here. Must not know
the corpus.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from keepfast import shop
from keepfast.device import cpu
from keepfast.errors import MachineError
from keepfast.judge.contents import Library
from keepfast.judge.judge import Bench, CpuJudge
from keepfast.judge.ladder import Ladder
from keepfast.materialise import tree_hash
from keepfast.model import Calibration, Candidate, File, Reason, Task, Verdict
from keepfast.redteam import attacks
from keepfast.redteam.entries import Entry, Folders
from keepfast.redteam.outcome import Found, of_verdict
from keepfast.task.load import load
from keepfast.walls.base import Walls

NOISE = 0.02  # SD between rounds


class Stands:
    """Judges by the name of their task. Close it, and what they built is gone."""

    def __init__(self, at: Folders, walls: Walls) -> None:
        self.at, self.walls = at, walls
        self._stack = ExitStack()
        self._judges: dict[str, tuple[CpuJudge, Candidate]] = {}
        self._copy: Path | None = None

    def close(self) -> None:
        self._judges.clear()
        self._stack.close()

    def verdict(self, entry: Entry, untimed: bool) -> Found:
        """`untimed`: everything but the clock for those that would take the whole ladder."""
        judge, start = self._judge(entry.task)
        subject = _candidate(attack_files(entry, judge.task) or (File(judge.task.entry_path, entry.source.encode()),))
        against = self._against(entry, judge.task) or start
        found = _checked(judge, subject) if untimed and entry.has("timed") else judge.evaluate(subject, against, ())
        if wrong := _breach(entry, found):
            return Found(False, "breach", "walls", wrong)
        return of_verdict(found)

    def _against(self, entry: Entry, task: Task) -> Candidate | None:
        name = entry.said.get("against", "")
        return _candidate((File(task.entry_path, (Path(task.folder) / name).read_bytes()),)) if name else None

    def _judge(self, name: str) -> tuple[CpuJudge, Candidate]:
        if name not in self._judges:
            task = load(self._folder() / name)
            if task.threads > (cores := len(os.sched_getaffinity(0))):
                raise MachineError(f"task {name} wants {task.threads} cores, there are {cores}")
            builds = self.walls.folder()
            self._stack.callback(shutil.rmtree, builds, ignore_errors=True)
            machine = cpu.fingerprint(self.walls.strength)
            made = CpuJudge(Bench(task, self.walls, machine, Library(), builds, lambda code: None, lambda event: None, shop.fresh()))
            start = _candidate((File(task.entry_path, (Path(task.root) / task.entry_path).read_bytes()),))
            assumed = Calibration(machine.hash, NOISE, 0.0, 0.0, tuple((c.name, NOISE) for c in task.timed), 0, 0.0, 0.0, time.time())
            begun = made.ready(start, assumed)
            if not begun.kept:
                raise MachineError(f"the start of task {name} does not pass: {begun.detail}", next_step="keepfast doctor")
            self._judges[name] = made, start
        return self._judges[name]

    def _folder(self) -> Path:
        """A copy of the tasks: a package's folder may be one that walled processes cannot pass."""
        if self._copy is None:
            self._copy = Path(tempfile.mkdtemp(prefix="keepfast-redteam-")).resolve()
            self._stack.callback(shutil.rmtree, self._copy, ignore_errors=True)
            shutil.copytree(self.at.cpu, self._copy / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
            self._copy.chmod(0o755)
        return self._copy / "tasks"


def _checked(judge: CpuJudge, subject: Candidate) -> Verdict:
    """As if it were the start: guard, build, correct."""
    ladder = Ladder(judge.bench.walls.strength, judge.bench.emit)
    found = judge._check(ladder, subject, subject)
    return found if isinstance(found, Verdict) else ladder.end(Reason.START, "")


def _candidate(files: tuple[File, ...]) -> Candidate:
    return Candidate(files, tree_hash(files), "", 0)


def attack_files(entry: Entry, task: Task) -> tuple[File, ...]:
    """The files of an attack that `hostile.toml` names; () for an entry that is its own source."""
    return attacks.files_of(_attack(entry.name), attacks.places_of(task.folder)) if entry.kind == "hostile" else ()


def _attack(name: str) -> attacks.Attack:
    return next(a for a in attacks.kinds() if a.name == name)


def _breach(entry: Entry, verdict: Verdict) -> str:
    """An attack says itself when something of it went through."""
    if entry.kind != "hostile" or verdict.reason.value != "return-code" or verdict.detail.endswith(attacks.REFUSED):
        return ""
    return f"an attempt went through: {verdict.detail}"
