"""A unified diff applied to files in memory, by `git apply` in a private folder outside any repository.

Knows nothing of champions or tasks. Git itself refuses paths that leave the folder and writing through links.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from keepfast.errors import LedgerError
from keepfast.model import File
from keepfast.repo.git import ask

PREFIXED = re.compile(r"^(?:--- a/|\+\+\+ b/|diff --git a/)", re.MULTILINE)
NAMES = re.compile(r"^(?:---|\+\+\+) (.+?)(?:\t.*)?\r?$", re.MULTILINE)
MOVES = re.compile(r"^(?:rename|copy) (?:from|to) (.+?)\r?$", re.MULTILINE)  # git writes these without a prefix


def apply(diff: str, files: tuple[File, ...], strip: int = 1, directory: str = "") -> tuple[File, ...] | str:
    """`files` with `diff` applied, or why it does not apply, in one line.

    Paths of the diff, less `strip` leading components, are below `directory`; both are relative to what paths of `files` are.
    """
    if re.search(r"^GIT binary patch", diff, re.MULTILINE):
        return "binary patches are not taken"
    with tempfile.TemporaryDirectory(prefix="keepfast-apply-") as name:
        top = Path(name).resolve()
        try:
            _write(top, files)
            args = ("apply", f"-p{strip}", "--whitespace=nowarn", *((f"--directory={directory}",) if directory else ()))
            said = ask(top, args, diff.encode("utf-8", "surrogateescape"), _alone(top))
            return _words(said.err) if said.code else _read(top)
        except OSError as error:
            raise LedgerError(f"the temporary folder cannot be used: {error.strerror}", where=name, next_step="df; set TMPDIR") from error


def merge(ours: bytes, base: bytes, theirs: bytes) -> bytes | str:
    """What `theirs` changed in `base`, made in `ours`; or the lines of `ours` that both changed, as in "lines 3 to 8"."""
    with tempfile.TemporaryDirectory(prefix="keepfast-merge-") as name:
        top = Path(name).resolve()
        try:
            _write(top, (File("ours", ours), File("base", base), File("theirs", theirs)))
            said = ask(top, ("merge-file", "-p", "ours", "base", "theirs"), env=_alone(top))
        except OSError as error:
            raise LedgerError(f"the temporary folder cannot be used: {error.strerror}", where=name, next_step="df; set TMPDIR") from error
    if said.code == 0:
        return said.out
    return _conflicts(said.out) if said.code < 128 else "it cannot be merged line by line"


def _conflicts(merged: bytes) -> str:
    """Where git left both versions, in lines of ours."""
    places, line, mine, began = list[str](), 0, True, 0
    for one in merged.splitlines():
        if one.startswith(b"<<<<<<< "):
            began = line + 1
        elif one.startswith(b"=======") and began:
            mine = False
            places.append(f"line {began}" if line <= began else f"lines {began} to {line}")
        elif one.startswith(b">>>>>>> "):
            mine, began = True, 0
        else:
            line += mine
    return ", ".join(places[:5])


def strip_of(diff: str) -> int:
    """1 for paths written as git does, `a/...` and `b/...`; 0 for plain ones."""
    return 1 if PREFIXED.search(diff) else 0


def touched(diff: str, strip: int) -> tuple[str, ...]:
    """Paths that the diff names, as far as they can be told without applying it; more than it changes, never fewer."""
    named = (name.strip('"').split("/", strip)[-1] for name in NAMES.findall(diff) if name != "/dev/null")
    return tuple(dict.fromkeys((*named, *(name.strip('"') for name in MOVES.findall(diff)))))


def _alone(top: Path) -> dict[str, str]:
    return {"GIT_CEILING_DIRECTORIES": str(top.parent), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def _write(top: Path, files: tuple[File, ...]) -> None:
    for file in files:
        path = top / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        if file.executable:
            path.chmod(0o755)


def _read(top: Path) -> tuple[File, ...]:
    found = []
    for folder, names, files in os.walk(top):
        for name in sorted(files) + [n for n in names if os.path.islink(os.path.join(folder, n))]:
            path = Path(folder) / name
            found.append(_file(path.relative_to(top).as_posix(), path))
    return tuple(sorted(found, key=lambda f: f.path))


def _file(name: str, path: Path) -> File:
    if path.is_symlink():
        return File(name, os.fsencode(os.readlink(path)), link=True)
    return File(name, path.read_bytes(), executable=bool(path.stat().st_mode & 0o100))


def _words(err: str) -> str:
    lines = [line.removeprefix("error: ").removeprefix("fatal: ") for line in err.splitlines() if line.startswith(("error: ", "fatal: "))]
    return "; ".join(lines[:2]) if lines else "git apply refused it"
