"""A campaign file: one engine, and several tasks whose kernels go into it together.

Owns the file's keys. Must not load the tasks, nor know how an engine is run.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from keepfast.engine.slots import NAMES as SLOTS
from keepfast.errors import TaskError, nearest
from keepfast.model.task import Engine
from keepfast.task.engine import EngineKeys, checked

MOST = 8  # tasks
HELP = "docs/e2e.md shows a campaign file"


class Part(Struct, frozen=True):
    """One `[[task]]`. `folder`: relative to the campaign file."""

    folder: str
    slot: str = ""
    only: str = ""


class Campaign(Struct, frozen=True):
    engine: Engine
    parts: tuple[Part, ...]
    folder: str  # of the file


class Keys(Struct, frozen=True):
    engine: EngineKeys
    task: tuple[Part, ...]


class _File(Struct, frozen=True):
    """Says where a key is wrong."""

    path: Path

    def error(self, path: tuple[str | int, ...], what: str, next_step: str = "") -> TaskError:
        where = ".".join(str(step) for step in path)
        return TaskError(what, where=f"{self.path.name}: {where}" if where else self.path.name, next_step=next_step or HELP)


def read(path: Path) -> Campaign:
    """TaskError for a file that is none."""
    file = _File(path)
    keys = _keys(file, _data(file))
    if not 2 <= len(keys.task) <= MOST:
        raise file.error(("task",), f"a campaign has from 2 to {MOST} [[task]], this one has {len(keys.task)}")
    if len({part.folder for part in keys.task}) < len(keys.task):
        raise file.error(("task",), "a task is named twice")
    for i, part in enumerate(keys.task):
        if keys.engine.kind != "command" and part.slot not in SLOTS:
            raise file.error(
                ("task", i, "slot"), f"there is no slot `{part.slot}`.{nearest(part.slot, SLOTS)}", f"Slots: {', '.join(SLOTS)}"
            )
    return Campaign(checked(file, keys.engine), keys.task, str(path.parent.resolve()))


def _data(file: _File) -> dict[str, Any]:
    try:
        return tomllib.loads(file.path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise file.error((), f"there is no {file.path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        raise file.error((), f"cannot be read as TOML: {problem}") from None


def _keys(file: _File, data: dict[str, Any]) -> Keys:
    _known(file, data, Keys, ())
    engine, parts = data.get("engine"), data.get("task")
    if isinstance(engine, dict):
        _known(file, engine, EngineKeys, ("engine",))
    for i, part in enumerate(parts if isinstance(parts, list) else []):
        if isinstance(part, dict):
            _known(file, part, Part, ("task", i))
    try:
        return msgspec.convert(data, Keys)
    except msgspec.ValidationError as problem:
        raise file.error((), str(problem)) from None


def _known(file: _File, table: dict[str, Any], kind: type[Struct], path: tuple[str | int, ...]) -> None:
    names = [f.name for f in msgspec.structs.fields(kind)]
    for key in table:
        if key not in names:
            raise file.error((*path, key), f"unknown key `{key}`.{nearest(key, names)}", f"Keys here: {', '.join(names)}")
