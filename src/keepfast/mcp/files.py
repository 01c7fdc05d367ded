"""The files that somebody outside means: those of the working tree, or given ones on top of an experiment's.

Owns how they become a change to an experiment. What is not editable is refused here already, with the name; the judge's guard decides.
Must not know who asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from keepfast.errors import TaskError, UsageError
from keepfast.materialise import Workshop
from keepfast.model import Candidate, File, Task
from keepfast.propose.agent import Changed
from keepfast.propose.agents import edited
from keepfast.task.paths import expand, matches_any, unfit

if TYPE_CHECKING:
    from keepfast.cli.stand import Stand

Texts = Mapping[str, str | None]
"""Whole files by their paths relative to the task's root; None: removed."""


def working(task: Task) -> tuple[File, ...]:
    """The editable files of the working tree. TaskError for a link."""
    root = Path(task.root)
    found = [(path, root / path) for path in expand(root, task.editable)]
    if linked := next((path for path, place in found if place.is_symlink()), None):
        raise TaskError("is a symbolic link; a candidate is made of plain files", where=linked)
    return tuple(File(path, place.read_bytes(), bool(place.stat().st_mode & 0o100)) for path, place in found)


def given(task: Task, base: Candidate, texts: Texts) -> tuple[File, ...]:
    """`texts` on top of `base`. UsageError for a path that is not editable."""
    for path in texts:
        if (why := unfit(path)) is not None:
            raise UsageError(f"the path {why}", where=path)
        if not matches_any(task.editable, path):
            raise UsageError(f"is not editable; these are: {', '.join(task.editable)}", where=path)
    return edited(base.files, tuple((path, None if text is None else text.encode()) for path, text in texts.items()))


def changes(base: Candidate, files: tuple[File, ...]) -> Changed:
    """From `base` to `files`. UsageError when they are the same."""
    old, new = {f.path: f.data for f in base.files}, {f.path: f.data for f in files}
    found = tuple((path, new.get(path)) for path in sorted(old | new) if old.get(path) != new.get(path))
    if not found:
        raise UsageError(f"no editable file differs from those of experiment {base.n}", next_step="edit one of them first")
    return found


def of_experiment(stand: Stand, n: int) -> Candidate:
    """The files of experiment `n`. UsageError when there is none, or they are not stored any more."""
    if stand.run is None or stand.ledger is None or stand.repo is None:
        raise UsageError("there was no run of this task yet", next_step="keepfast run TASK")
    found = stand.ledger.experiment(stand.run.id, n)
    if not found.commit:
        raise UsageError(f"the files of experiment {n} are not stored", next_step="keepfast log")
    return Workshop(stand.task, stand.repo).at(found.commit, n)


def origin(stand: Stand, files: tuple[File, ...]) -> Candidate:
    """The keep that `files` were made from: the one with the fewest other lines, the newest of several."""
    if stand.run is None or stand.ledger is None:
        raise UsageError("there was no run of this task yet", next_step="keepfast run TASK")
    keeps = [of_experiment(stand, e.n) for e in stand.ledger.keeps(stand.run.id) if e.commit]
    return min(reversed(keeps), key=lambda keep: _distance(keep.files, files))


def _distance(a: tuple[File, ...], b: tuple[File, ...]) -> int:
    """Lines that only one of them has."""
    mine, theirs = _lines(a), _lines(b)
    return sum(((mine - theirs) + (theirs - mine)).values())


def _lines(files: tuple[File, ...]) -> Counter[tuple[str, bytes]]:
    return Counter((f.path, line) for f in files for line in f.data.split(b"\n"))
