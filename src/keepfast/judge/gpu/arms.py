"""Artifacts of the GPU judge: files of candidates and baselines, and their captures, each in a process and an arena of its own.

Owns what is remembered of builds and captures in one run, and which autotuned configuration is pinned. Must not know how anything is
checked or timed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import MachineError, TaskError
from keepfast.gpu.messages import CaseWork
from keepfast.judge import builder
from keepfast.judge.builder import BuiltTree, Site
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.stages import Stage
from keepfast.judge.gpu.workers import Captured, Pool, Subject
from keepfast.model import Candidate, File, Reason, Task
from keepfast.task.rules import prepare_is, prepares

CAPTURE_S = 60.0
BASELINE_S = 240.0  # torch.compile takes its time
MOST_TUNED = 64  # configurations of all autotuned kernels of an artifact together
MOST_CONFIGS = 24  # of an autotuned kernel that are tried
KEPT = 12  # artifacts remembered, those last used, beside the start and the baselines

Pins = dict[str, tuple[tuple[str, int], ...]]  # case -> (kernel, configuration)
Samples = tuple[bytes, ...]  # the image of one set of each case
Pace = Callable[["Artifact", Captured], "dict[str, float] | Failure"]  # ns of a call of each timed case


class Arm(Struct, frozen=True):
    """What is captured: a candidate, or a baseline as if it were one."""

    key: str  # tree of a candidate, or "baseline NAME"
    task: Task
    candidate: Candidate
    timeout_s: float = CAPTURE_S


class Artifact:
    """A built arm, its captures by take, and the pins of its autotuned kernels."""

    def __init__(self, arm: Arm, tree: BuiltTree) -> None:
        self.arm, self.tree = arm, tree
        self.takes: dict[int, Captured] = {}
        self.drawn: dict[int, int] = {}  # of each take the generation of what its host code could read
        self.pins: Pins = {}
        self.pinned = False

    @property
    def code(self) -> str:
        """Hash of everything that its first capture launches, over all cases."""
        found = self.takes.get(0)
        if found is None:
            return ""
        digest = hashlib.sha256()
        for case in sorted(found.plans):
            digest.update(f"{case} {found.plans[case].plan.signature(exact_scalars=True)}".encode())
        return digest.hexdigest()


def _beside_c(arm: Arm) -> Failure | None:
    """The C ABI has no `prepare`: one that is never called would only look like it."""
    path = arm.task.entry_path
    entry = next((file for file in arm.candidate.files if file.path == path), None)
    if path.endswith(".py") or entry is None or not prepares(path, entry.data.decode("utf-8", "replace")):
        return None
    step = "do that work in the call, or give the function another name"
    return Failure(Reason.RULE, f"{path} defines `prepare`, which is called beside an entry in Python only: {step}")


class Arms:
    def __init__(self, task: Task, site: Site, folder: Path, pool: Pool) -> None:
        self.task, self.site, self.folder, self.pool = task, site, folder, pool
        self.stages: tuple[Stage, ...] = ()
        self.samples: Samples = ()
        self.generation = 0  # of what the host may read in them
        self.made: dict[str, Artifact] = {}  # by key, the one last asked for at the end
        self.lasting: set[str] = set()  # keys that are never forgotten
        self.dtypes: dict[str, str] = {}

    def of(self, candidate: Candidate) -> Arm:
        return Arm(candidate.tree, self.task, candidate)

    def baseline(self, name: str) -> Arm:
        known = next((b for b in self.task.baselines if b.name == name), None)
        if known is None:
            raise TaskError(f"no baseline `{name}`", where="baselines/")
        task = replace(
            self.task,
            entry_path=known.path,
            entry_symbol="kernel",
            tunables="",
            editable=(known.path,),
            languages=(known.language,),
        )
        files = (File(known.path, (Path(self.task.folder) / known.path).read_bytes()),)
        return Arm(f"baseline {name}", task, Candidate(files, f"baseline {name}", ""), BASELINE_S)

    def build(self, arm: Arm) -> Artifact | Failure:
        if arm.key in self.made:
            self.made[arm.key] = self.made.pop(arm.key)
            return self.made[arm.key]
        if failure := _beside_c(arm):
            return failure
        name = hashlib.sha256(arm.key.encode()).hexdigest()[:40]
        found = builder.tree(self.site, arm.task, arm.candidate.files, self.dtypes, self.folder / name)
        if isinstance(found, Failure):
            return found
        self._forget()
        self.made[arm.key] = Artifact(arm, found)
        return self.made[arm.key]

    def capture(self, artifact: Artifact, take: int, pins: Pins | None = None) -> Captured | Failure:
        """The capture number `take` of an artifact, made when it is first asked for: another process, another arena."""
        if pins is None and take in artifact.takes and artifact.drawn.get(take, 0) == self.generation:
            return artifact.takes[take]
        given = artifact.pins if pins is None else pins
        cases = tuple(CaseWork(s.layout, s.calls, given.get(s.name, ()), len(i)) for s, i in zip(self.stages, self.samples, strict=True))
        task = artifact.arm.task
        subject = Subject(
            language=artifact.tree.language,
            entry_path=task.entry_path,
            entry_symbol=task.entry_symbol,
            files=artifact.tree.files,
            library=artifact.tree.library,
            path=artifact.tree.path,
            prepare=prepare_is(task),
            cases=cases,
            samples=self.samples,
        )
        found = self.pool.capture(subject, artifact.arm.timeout_s)
        if isinstance(found, Captured) and pins is None:
            artifact.takes[take], artifact.drawn[take] = found, self.generation
        return found

    def kept(self, artifact: Artifact, take: int) -> Captured:
        """A capture of something that passed before; MachineError when it fails now."""
        found = self.capture(artifact, take)
        if isinstance(found, Failure):
            raise MachineError(f"{artifact.arm.key[:20]}, which passed before, cannot be captured any more: {found.detail}")
        return found

    def pin(self, artifact: Artifact, pace: Pace) -> Failure | None:
        """Pin the fastest configuration of every autotuned kernel for each case, one kernel after the other, once an artifact."""
        first = artifact.takes.get(0)
        if artifact.pinned or first is None:
            return None
        pins: Pins = {}
        tuned = [(name, min(len(configs), MOST_CONFIGS)) for name, configs in first.autotuned if len(configs) > 1]
        left = MOST_TUNED
        for kernel, count in tuned:
            if (left := left - count) < 0:
                break  # the others keep their first configuration
            fastest = self._fastest(artifact, pins, (kernel, count), pace)
            if isinstance(fastest, Failure):
                return fastest
            pins = self._with(pins, kernel, fastest)
        artifact.pins, artifact.pinned = pins, True
        if tuned:
            artifact.takes.clear()
        found = self.capture(artifact, 0)
        return found if isinstance(found, Failure) else None

    def _fastest(self, artifact: Artifact, pins: Pins, kernel: tuple[str, int], pace: Pace) -> dict[str, int] | Failure:
        """By case the index of the fastest configuration of a kernel that has so many. One that does not fit this card is no choice;
        when none fits, why the last one does not. Cases that are not timed get the one that serves the timed ones best."""
        name, count = kernel
        found: dict[int, dict[str, float]] = {}
        failure: Failure | None = None
        for index in range(count):
            captured = self.capture(artifact, 0, self._with(pins, name, dict.fromkeys((s.name for s in self.stages), index)))
            ns = captured if isinstance(captured, Failure) else pace(artifact, captured)
            if isinstance(ns, Failure):
                failure = ns
            else:
                found[index] = ns
        if failure is not None and not found:
            return failure
        best = {s.name: min(found, key=lambda index: found[index].get(s.name, math.inf)) for s in self.stages if s.case.timed}
        overall = min(found, key=lambda index: sum(math.log(ns) for ns in found[index].values()))
        return {s.name: best.get(s.name, overall) for s in self.stages}

    def _with(self, pins: Pins, kernel: str, chosen: Mapping[str, int]) -> Pins:
        """These pins, and one kernel more."""
        return {s.name: (*pins.get(s.name, ()), (kernel, chosen[s.name])) for s in self.stages}

    def _forget(self) -> None:
        """Plans are large, and each holds its addresses: beside what is lasting only those last used are remembered."""
        loose = [key for key in self.made if key not in self.lasting and not key.startswith("baseline ")]
        for key in loose[:-KEPT]:
            del self.made[key]
