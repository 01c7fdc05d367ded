"""What the preprocessor makes of a C file: macros resolved, headers in place, and which file every piece came from.

Runs `gcc -E` with the human's flags on the human's own file. Compiles and executes nothing; must not know prototypes or tasks.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from keepfast import native
from keepfast.errors import TaskError

SECONDS = 30.0
_WORD = "keepfast_this_is"  # stands before the function's name, to see what macros make of that
_MARKER = re.compile(r'^# \d+ "((?:\\.|[^"\\\n])*)"[^\n]*$', re.MULTILINE)
_ERROR = re.compile(r"^(?P<file>[^\n:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>[^\n]+)$", re.MULTILINE)
_MISSING = re.compile(r"(?P<name>[^\s:]+): No such file or directory")


class Settings(Struct, frozen=True):
    """How a file is compiled: absolute include folders and flags. Files outside `root` count as the system's."""

    root: Path
    include: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    cpp: bool = False


class Piece(Struct, frozen=True):
    """A stretch of the text that came from one file; None for what is no file."""

    start: int
    end: int
    file: Path | None


class Unit(Struct, frozen=True):
    """A C file after the preprocessor. `symbol` is what the function's name has become; `pieces` follow one another."""

    text: str
    symbol: str
    root: Path
    pieces: tuple[Piece, ...]

    @property
    def own(self) -> str:
        """`text` with everything that is not the repository's turned to spaces; the rest keeps its place."""
        return "".join(self.text[p.start : p.end] if self._ours(p) else f"{' ' * (p.end - p.start - 1)}\n" for p in self.pieces)

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of the repository that were read, sorted."""
        return tuple(sorted({p.file for p in self.pieces if p.file and self._ours(p)}))

    @property
    def foreign(self) -> tuple[Path, ...]:
        """Files from elsewhere that were read, the system's among them."""
        return tuple(sorted({p.file for p in self.pieces if p.file and not self._ours(p)}))

    def file_at(self, offset: int) -> Path | None:
        return next((p.file for p in self.pieces if p.start <= offset < p.end), None)

    def _ours(self, piece: Piece) -> bool:
        return piece.file is not None and piece.file.is_relative_to(self.root)


def read(path: Path, symbol: str, settings: Settings) -> Unit:
    """The absolute `path` as the compiler sees it. TaskError for a header that is not found, with the folder that would help;
    MachineError without a compiler."""
    gcc = native.cpp_compiler() if settings.cpp else native.compiler()
    folders = (f"-I{folder}" for folder in settings.include)
    argv = [str(gcc), "-E", *settings.flags, *folders, "-x", "c++" if settings.cpp else "c", "-"]
    source = f'#include "{path}"\n{_WORD} {symbol}\n'.encode()
    env = {"PATH": f"{gcc.parent}:{os.defpath}", "LC_ALL": "C"}
    try:
        done = subprocess.run(argv, input=source, capture_output=True, env=env, cwd=path.parent, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise TaskError(f"the preprocessor took more than {SECONDS:.0f} s", where=str(path)) from None
    if done.returncode != 0:
        raise _refused(done.stderr.decode(errors="replace"), path, settings)
    text = done.stdout.decode(errors="replace")
    return Unit(text, _name(text, symbol), settings.root, tuple(_pieces(text, path.parent)))


def _name(text: str, symbol: str) -> str:
    found = re.search(rf"^{_WORD} *([A-Za-z_]\w*)\s*$", text, re.MULTILINE)
    return found[1] if found else symbol


def _pieces(text: str, folder: Path) -> Iterator[Piece]:
    """The stretches between line markers; each marker begins one."""
    known: dict[str, Path | None] = {}
    markers = list(_MARKER.finditer(text))
    ends = [m.start() for m in markers[1:]] + [len(text)]
    for marker, end in zip(markers, ends, strict=True):
        name = marker[1]
        if name not in known:
            known[name] = None if name.startswith("<") else (folder / _plain(name)).resolve()
        yield Piece(marker.start(), end, known[name])


def _plain(quoted: str) -> str:
    """A file name as the marker has it: backslashes before quotes, octal bytes for what is not ASCII."""
    data = re.sub(rb"\\([0-7]{3}|.)", lambda m: bytes([int(m[1], 8)]) if len(m[1]) == 3 else m[1], quoted.encode())
    return os.fsdecode(data)


# --------------------------------------------------------------------------------------------- sentences


def _refused(log: str, path: Path, settings: Settings) -> TaskError:
    found = _ERROR.search(log)
    if found is None:
        return TaskError(f"the preprocessor refuses it: {(log.strip().splitlines() or ['no message'])[-1][:300]}", where=str(path))
    where = f"{found['file']}:{found['line']}"
    missing = _MISSING.match(found["text"])
    if missing is None:
        return TaskError(found["text"][:300], where=where, next_step="Give the flags it is built with: --flag=-DNAME=VALUE")
    return TaskError(f"includes `{missing['name']}`, which is not found", where=where, next_step=_folders(missing["name"], settings.root))


def _folders(header: str, root: Path) -> str:
    """What to type so that `header` is found: the folders of the repository that have it."""
    ends = tuple(Path(header).parts)
    hits = (p for p in root.rglob(ends[-1]) if p.parts[-len(ends) :] == ends and ".git" not in p.parts)
    found = sorted({p.parents[len(ends) - 1] for p in hits}, key=lambda p: (len(p.parts), p))
    made = next((p for end in (".in", ".cmake") for p in root.rglob(f"{ends[-1]}{end}")), None)
    if made and not found:
        return f"It is made from {made.relative_to(root)}: configure or build this project first"
    if not found:
        return "It is not in this repository: install its package; where it is not found then, add --flag=-I/its/folder"
    return "   or   ".join(f"--include {os.path.relpath(folder)}" for folder in found[:3])
