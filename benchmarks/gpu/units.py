"""The kernels that plans.py captures: starts, baselines and deck variants of the example tasks and of the tests' tasks, and operations.

Owns what a deck entry becomes and the order of kernels. Must not know judges, processes or the card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import bench
import ops
from msgspec import Struct
from msgspec.structs import replace

from keepfast.judge.builder import Site
from keepfast.judge.gpu.arms import Arm, Arms
from keepfast.model import File, Files, Patch, Task
from keepfast.propose.deck import _proposal as proposed
from keepfast.propose.deck import entries
from keepfast.repo.patch import apply, strip_of

CASES = {  # a timed case of some ten MiB where there is one; else the first
    "rmsnorm": "prefill4096",
    "rmsnorm_plain": "m1024_n4096",
    "softmax": "m1024_n4096",
    "matmul": "decode64",
    "quant": "prefill4096",
    "decode_attention": "b8_s1024",
    "decode_attention_paged": "b8_s1024_p16",
}
OPS = "ops"
CAPTURE_S = 90.0  # torch.compile among them
RANK = {"start": 0, "op": 1, "baseline": 2, "deck": 3, "compiled": 4}  # the slow ones last


class Unit(Struct, frozen=True):
    """A kernel. `kind` is a key of RANK; `case` of its task."""

    task: str
    kind: str
    name: str
    case: str
    arm: Arm

    @property
    def key(self) -> str:
        return f"{self.task}: {self.name}, {self.case}"


def folders() -> dict[str, Path]:
    """Tasks by name; that of the operations is made elsewhere."""
    found = [*sorted((bench.ROOT / "examples/gpu").iterdir()), *sorted((bench.ROOT / "tests/gpu/tasks").iterdir())]
    return {path.name: path for path in found if (path / "task.toml").is_file()}


def units_of(task: Task) -> Iterator[Unit]:
    """Start, baselines and deck variants of a task."""
    case = CASES.get(task.name, task.timed[0].name)
    start = bench.start_of(task)
    yield Unit(task.name, "start", "start", case, Arm(start.tree, task, start))
    for baseline in task.baselines:
        arm = Arms(task, Site(None), Path(), None).baseline(baseline.name)  # type: ignore[arg-type]  # nothing is built here
        kind = "compiled" if "compiled" in baseline.name else "baseline"
        yield Unit(task.name, kind, f"baseline {baseline.name}", case, replace(arm, timeout_s=CAPTURE_S))
    for name, files in deck(task, start.files):
        made = bench.of_files(files)
        yield Unit(task.name, "deck", f"deck {name}", case, Arm(made.tree, task, made))


def deck(task: Task, start: tuple[File, ...]) -> Iterator[tuple[str, tuple[File, ...]]]:
    """Each entry on the newest whole one before it that it fits; ValueError for a patch that fits none."""
    whole, patched = [start], list[tuple[File, ...]]()
    for entry in entries(task):
        change = proposed(entry, "", "").change
        if isinstance(change, Files):
            files = {f.path: f for f in start} | {path: File(path, data) for path, data in change.files if data is not None}
            whole.append(tuple(files.values()))
            yield entry.stem, whole[-1]
        elif isinstance(change, Patch):
            tried = [apply(change.diff, base, strip_of(change.diff)) for base in (*reversed(whole), *reversed(patched))]
            fits = [made for made in tried if not isinstance(made, str)]
            if not fits:
                raise ValueError(f"{task.name}, {entry.name} fits no variant before it: {tried[0]}")
            patched.append(fits[0])
            yield entry.stem, fits[0]


def units_of_ops(task: Task) -> Iterator[Unit]:
    for name in ops.OPS:
        made = bench.candidate(task, f"# {name}\n{ops.source(name)}")
        yield Unit(OPS, "op", name, name, Arm(made.tree, task, made))


def ordered(units: Sequence[Unit]) -> list[Unit]:
    """Tasks take turns within each rank."""
    seen: Counter[tuple[str, str]] = Counter()
    turns = []
    for unit in units:
        turns.append((RANK[unit.kind], seen[unit.task, unit.kind], unit.key))
        seen[unit.task, unit.kind] += 1
    return [unit for _, unit in sorted(zip(turns, units, strict=True), key=lambda pair: pair[0])]
