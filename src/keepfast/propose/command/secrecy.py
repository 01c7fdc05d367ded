"""Keeping keys out of what a turn hands on. Owns finding a key in a turn, and writing files that only this user can read."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from keepfast.propose.agent import Changed, Outcome, Turn

SHORTEST = 8  # a shorter value is no key, and would be found everywhere
HIDDEN = "[key]"
WORDS = ("detail", "title", "said", "session", "version")


def of(keys: Iterable[str], logins: Iterable[tuple[str, Path]]) -> tuple[str, ...]:
    """What must not be seen: values of keys, and the long strings of login files."""
    found = [key for key in keys if len(key) >= SHORTEST]
    for _, path in logins:
        found += re.findall(r'"([^"\s]{20,})"', path.read_text(encoding="utf-8", errors="replace"))
    return tuple(sorted({*found}, key=len, reverse=True))


def holds(changed: Changed, keys: tuple[str, ...]) -> bool:
    """Whether a key stands in the files or in their names."""
    return any(key.encode() in (data or b"") or key in path for path, data in changed for key in keys)


def hidden(turn: Turn, keys: tuple[str, ...]) -> Turn:
    """The turn without keys. Files that hold one are not handed on: they would end up in git."""
    if holds(turn.changed, keys):
        turn = replace(turn, outcome=Outcome.MALFORMED, detail="an editable file holds a key; its files are not used", changed=())
    for key in keys:
        turn = replace(turn, **{name: getattr(turn, name).replace(key, HIDDEN) for name in WORDS})
    return turn


def folder(root: Path, name: str) -> Path:
    """The folder `name` below `root`, made where it is missing. What an agent put in its place, a link say, is moved away."""
    place = root
    for part in Path(name).parts:
        place = place / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.rename(place.with_name(f"{part}.{secrets.token_hex(8)}"))
        place.mkdir(exist_ok=True, mode=0o700)
        place.chmod(0o700)
    return place


def write(root: Path, name: str, data: bytes) -> None:
    """A file for this user alone below a folder that an agent may have changed: never through a link, put in place whole."""
    parent, last = os.path.split(name)
    place = folder(root, parent)
    if (place / last).is_dir() and not (place / last).is_symlink():
        (place / last).rename(place / f"{last}.{secrets.token_hex(8)}")
    made = place / f".{secrets.token_hex(8)}"
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    made.rename(place / last)
