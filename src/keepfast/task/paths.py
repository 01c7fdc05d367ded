"""Paths and globs of a task, as text: what a pattern matches, and whether it could ever reach a folder.

Patterns and paths are relative, with forward slashes: `*` and `?` stay inside one component, `**` spans any number.
Must not know tasks or git; the only file access is `expand`, which lists.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath


def matches(pattern: str, path: str) -> bool:
    """Whether `pattern` matches the whole of `path`."""
    return _matches(pattern.split("/"), path.split("/"))


def matches_any(patterns: Iterable[str], path: str) -> bool:
    return any(matches(p, path) for p in patterns)


def reaches(pattern: str, path: str) -> bool:
    """Whether `pattern` matches the file `path` or, for a folder (`path` ends in a slash), could match anything in it.

    Case and Unicode form do not hide a match.
    """
    parts, wanted = fold(pattern).split("/"), fold(path).rstrip("/").split("/")
    return _below(parts, wanted) if path.endswith("/") else _matches(parts, wanted)


def fold(path: str) -> str:
    """The form in which two paths are compared where a file system may fold case."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def unfit(path: str) -> str | None:
    """Why `path` is no clean relative path or glob; None when it is one."""
    pure = PurePosixPath(path)
    if not path or not path.isprintable() or "\\" in path:
        return "must be a path with forward slashes"
    if pure.is_absolute():
        return "must be relative to `root`"
    if ".." in pure.parts:
        return "must not contain `..`; move `root` up instead"
    if any(part.casefold() == ".git" for part in pure.parts):
        return "must not name `.git`"
    if str(pure) != path or path == ".":
        return f"must be written plainly, as in `{pure}`" if str(pure) != "." else "must name a file or folder below `root`"
    return None


def expand(root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """Files below `root` that any of `patterns` matches, sorted. `.git` and `.keepfast` are never entered; links are not followed."""
    found: set[str] = set()
    for pattern in patterns:
        found.update(p for p in _walk(root, _fixed(pattern)) if matches(pattern, p))
    return tuple(sorted(found))


def _walk(root: Path, start: str) -> Iterator[str]:
    top = root / start
    if top.is_file():
        yield start
    for folder, names, files in os.walk(top):
        names[:] = [n for n in names if n not in (".git", ".keepfast")]
        for file in files:
            yield (Path(folder) / file).relative_to(root).as_posix()


def _fixed(pattern: str) -> str:
    """The leading components without wildcards."""
    parts = pattern.split("/")
    wild = next((i for i, part in enumerate(parts) if any(c in part for c in "*?[")), len(parts))
    return "/".join(parts[:wild])


def _matches(pattern: list[str], path: list[str]) -> bool:
    if not pattern or not path:
        return not path and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _matches(pattern[1:], path) or _matches(pattern, path[1:])
    return fnmatchcase(path[0], pattern[0]) and _matches(pattern[1:], path[1:])


def _below(pattern: list[str], folder: list[str]) -> bool:
    if not folder or not pattern:
        return bool(pattern)
    if pattern[0] == "**":
        return _below(pattern[1:], folder) or _below(pattern, folder[1:])
    return fnmatchcase(folder[0], pattern[0]) and _below(pattern[1:], folder[1:])
