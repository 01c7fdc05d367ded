"""Artifacts: builds of candidates and baselines, kept by content, and how each is run.

Owns the cache of builds of one run. Must not know how results are checked or timed.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from msgspec.structs import replace

from keepfast.device import cpu
from keepfast.errors import MachineError, TaskError
from keepfast.judge import builder
from keepfast.judge.builder import Built
from keepfast.judge.channel import Failure, RunnerSpec, c_runner, python_runner
from keepfast.model import Baseline, Candidate, File, Task
from keepfast.task import places
from keepfast.walls.base import Walls


class Arms:
    def __init__(self, task: Task, walls: Walls, folder: Path) -> None:
        self.task, self.walls, self.folder = task, walls, folder
        self.cores = cpu.last_cores(task.threads)
        self.dtypes: dict[str, str] = {}
        self.built: dict[str, Built] = {}

    def build(self, candidate: Candidate, dtypes: dict[str, str]) -> Built | Failure:
        return self._build(candidate.tree, self.task, candidate.files, dtypes)

    def code(self, candidate: Candidate) -> str:
        return self.built[candidate.tree].code_hash if candidate.tree in self.built else ""

    def spec(self, candidate: Candidate) -> RunnerSpec:
        """How to run a candidate that was built before, or is built now (a champion after a resume)."""
        found = self.build(candidate, self.dtypes)
        if isinstance(found, Failure):
            raise MachineError(f"a kernel that was kept does not build any more: {found.detail}", next_step="keepfast doctor")
        return self._native(found.path)

    start = spec

    def variant(self, candidate: Candidate, number: int) -> RunnerSpec:
        """The candidate with `number` cache lines of padding before its code: equal meaning, other layout."""
        pad = f'__asm__(".text\\n.skip {64 * number}, 0x90\\n");\n#line 1\n'.encode()
        files = tuple(File(f.path, pad + f.data, f.executable) if f.path.endswith((".c", ".cc", ".cpp")) else f for f in candidate.files)
        found = self._build(f"{candidate.tree}-pad{number}", self.task, files, self.dtypes)
        if isinstance(found, Failure):
            raise MachineError(f"the start kernel does not build with padding before it: {found.detail}")
        return self._native(found.path)

    def baseline(self, name: str, dtypes: dict[str, str]) -> RunnerSpec | Failure:
        known = next((b for b in self.task.baselines if b.name == name), None)
        if known is None:
            raise TaskError(f"no baseline `{name}`", where="baselines/")
        path = Path(self.task.folder) / known.path
        if known.language == "python":
            return self._python(path)
        found = self._build(f"baseline-{name}", self._as_task(known), (self._file(path),), dtypes)
        return found if isinstance(found, Failure) else self._native(found.path)

    def frozen(self, dtypes: dict[str, str]) -> str:
        """Path of the frozen oracle's shared object, "" when the task has a reference()."""
        files = places.frozen(self.task)
        if not files:
            return ""
        found = self._build("frozen", self.task, files, dtypes)
        if isinstance(found, Failure):
            raise TaskError(f"the frozen sources do not build: {found.detail}", where=f"{self.task.folder}/frozen")
        return str(found.path)

    def _build(self, key: str, task: Task, files: tuple[File, ...], dtypes: dict[str, str]) -> Built | Failure:
        if key in self.built:
            return self.built[key]
        name = hashlib.sha256(key.encode()).hexdigest()[:40]  # of the whole key: builds that differ only in padding are different files
        found = builder.build(self.walls, task, files, dtypes, self.folder / f"{name}.so")
        if isinstance(found, Built):
            self.built[key] = found
        return found

    def _file(self, path: Path) -> File:
        return File(path.relative_to(self.task.root).as_posix(), path.read_bytes())

    def _as_task(self, baseline: Baseline) -> Task:
        entry = self._file(Path(self.task.folder) / baseline.path).path
        return replace(self.task, entry_path=entry, entry_symbol="kernel", tunables="", editable=(entry,))

    def _native(self, path: Path) -> RunnerSpec:
        return c_runner(str(path), threads=self.task.threads, cores=self.cores)

    def _python(self, path: Path) -> RunnerSpec:
        """A copy of all baselines, so that the walled user can read them wherever the repository lies."""
        copy = self.folder / "baselines"
        if not copy.is_dir():
            shutil.copytree(path.parent, copy)
        return python_runner(str(copy / path.name), threads=self.task.threads, cores=self.cores)
