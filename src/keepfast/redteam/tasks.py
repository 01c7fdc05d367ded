"""Tasks that a wrong answer would pass, or that cannot be judged: written to a folder, read and linted as `keepfast check` does.

Must not know the corpus.
"""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from pathlib import Path

from keepfast import shop
from keepfast.errors import TaskError
from keepfast.judge.contents import Library
from keepfast.judge.lint import Linter
from keepfast.judge.reference import Reference
from keepfast.model import Task
from keepfast.redteam.entries import Entry, Folders
from keepfast.redteam.outcome import Found
from keepfast.task.checks import refuse_unfit
from keepfast.task.load import load

REFUSED = "refused"  # the reason that a task has


def verdict(entry: Entry, at: Folders) -> Found:
    """`replace`: texts of task.toml to replace; `reference`: another reference.py."""
    place = Path(tempfile.mkdtemp(prefix="keepfast-redteam-"))
    try:
        folder = _written(entry, at.cpu / entry.task, place / entry.task)
        return _loaded(folder, tomllib.loads(entry.source).get("says", ""))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _written(entry: Entry, base: Path, folder: Path) -> Path:
    said = tomllib.loads(entry.source)
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "task.toml").read_text()
    for old, new in said.get("replace", ()):
        if old not in text:
            raise ValueError(f"{entry.path}: task.toml has no `{old}`")
        text = text.replace(old, new)
    (folder / "task.toml").write_text(text)
    if "reference" in said:
        (folder / "reference.py").write_text(said["reference"])
    return folder


def _loaded(folder: Path, says: str) -> Found:
    try:
        task = load(folder)
        refuse_unfit(task)
    except TaskError as error:
        return _refused(error, "load", says)
    return _linted(task, says)


def _linted(task: Task, says: str) -> Found:
    try:
        report = Linter(Reference(task), Library(), shop.fresh()).run()
    except TaskError as error:
        return _refused(error, "lint", says)
    return Found(False, "fit", detail=report.score)


def _refused(error: TaskError, layer: str, says: str) -> Found:
    """Refused for the reason that is meant, or for another one."""
    text = f"{error.where}: {error.what}" if error.where else error.what
    return Found(True, REFUSED if says in text else "refused for something else", layer, text)
