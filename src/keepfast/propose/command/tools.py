"""What must be readable for a program to run: its own folder, its packages, its interpreter. Guessed from paths, never by running it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

COVERED = ("/usr", "/bin", "/sbin", "/lib", "/lib64")


def folders(program: str, path: str, *, never: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Folders and files to show for `program`, an absolute path, searched for interpreters on `path`. `never` and `/` are left out."""
    found = [*_of(program)]
    for interpreter in _interpreters(program, path):
        found += [*_of(interpreter), *_prefix(interpreter)]
    hidden = {"/", *(os.path.realpath(n) for n in never)}
    return tuple(dict.fromkeys(f if os.path.realpath(f) not in hidden else program for f in found if not f.startswith(COVERED)))


def _of(program: str) -> Iterator[str]:
    """Where each link on the way to a program lies, and the packages that it lies in."""
    seen = 0
    while seen < 20:
        yield _root(program)
        if not os.path.islink(program):
            break
        program = os.path.normpath(os.path.join(os.path.dirname(program), os.readlink(program)))
        seen += 1
    yield _root(os.path.realpath(program))


def _root(program: str) -> str:
    """The topmost folder of packages above a program, else the folder it lies in."""
    parts = Path(program).parts
    if "node_modules" in parts:
        return str(Path(*parts[: parts.index("node_modules") + 1]))
    return os.path.dirname(program)


def _interpreters(program: str, path: str) -> Iterator[str]:
    """What the first line of a script names."""
    try:
        with open(program, "rb") as file:
            words = file.read(256).split(b"\n")[0].decode("utf-8", "replace")
    except OSError:
        return  # it may be run without being read: a binary
    if not words.startswith("#!"):
        return
    names = [w for w in words[2:].split() if not w.startswith("-") and "=" not in w]
    for name in names[:2]:
        found = name if name.startswith("/") else shutil.which(name, path=path)
        if found and os.path.isfile(found):
            yield found


def _prefix(interpreter: str) -> Iterator[str]:
    """`PREFIX` of PREFIX/bin/node: its libraries lie there. Also of the interpreter that a virtual environment borrows."""
    for found in (interpreter, os.path.realpath(interpreter)):
        folder = Path(found).parent
        if folder.name == "bin":
            yield str(folder.parent)
