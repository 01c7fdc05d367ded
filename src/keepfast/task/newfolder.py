"""A new task folder on disk: where it may be, what a FILE:FUNCTION on the command line means, and all of its files or none.

Must not know what is written.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from msgspec import Struct

from keepfast.errors import TaskError, UsageError
from keepfast.task.load import load
from keepfast.task.places import repository


class Made(Struct, frozen=True):
    """A folder as it will be. `files`: contents by name; `notes`: sentences for the human."""

    files: dict[str, bytes]
    notes: tuple[str, ...] = ()


def free(folder: Path) -> Path:
    """The folder as an absolute path. UsageError when it has something in it."""
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already", next_step="Choose another name, or remove it first")
    return folder


def split(text: str, form: str, name: str = r"[A-Za-z_]\w*") -> tuple[Path, str]:
    """FILE:FUNCTION of an option, whose `form` is for the message; `name` is what FUNCTION may be."""
    path, colon, found = text.rpartition(":")
    if not colon or not re.fullmatch(name, found):
        raise UsageError(f"`{text}` is not of the form {form}")
    return existing(path, form.split(" ", maxsplit=1)[0]), found


def existing(path: str, option: str) -> Path:
    found = Path(path).resolve()
    if not found.is_file():
        raise UsageError(f"{path} does not exist", where=option, next_step=f"Looked for {found}")
    return found


def root(folder: Path, path: Path) -> Path:
    """The repository that has both the new folder and the file."""
    found = repository(path.parent)
    if found is None:
        step = f"cd {path.parent} && git init && git add -A && git commit -m start"
        raise UsageError(f"{path} is in no git repository, where what is kept could be recorded", next_step=step)
    if repository(folder.parent) != found:
        raise UsageError(f"{folder} is not in the repository of {path.name}", next_step=f"Make the task inside {found}")
    return found


def inside(path: Path, root: Path, option: str) -> Path:
    found = path.resolve()
    if not found.exists() or not found.is_relative_to(root):
        raise UsageError(f"{path} is not in {root}", where=option)
    return found


def relative(paths: tuple[str, ...], root: Path, option: str) -> tuple[str, ...]:
    return tuple(inside(Path(p), root, option).relative_to(root).as_posix() for p in paths)


def write(folder: Path, files: dict[str, bytes]) -> tuple[Path, ...]:
    """Write all or nothing, then read the task back."""
    made = next((p for p in (*reversed(folder.parents), folder) if not p.exists()), None)
    try:
        for name, contents in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(contents)
        load(folder)
    except OSError as problem:
        _remove(folder, made)
        raise UsageError(f"cannot write {folder}: {problem.strerror}", next_step="Choose a folder that you may write") from None
    except TaskError:
        _remove(folder, made)
        raise
    return tuple(folder / name for name in files)


def _remove(folder: Path, made: Path | None) -> None:
    """Take away what was written: from the first new folder down, or the contents of a folder that was empty before."""
    for path in (made,) if made else tuple(folder.iterdir()):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.exists():
            path.unlink()
