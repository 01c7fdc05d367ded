"""The deck: changes that a human wrote down beforehand, offered one after the other by name.

Owns the layout of deck/: `NNN-slug.patch` is a unified diff, a folder `NNN-slug/` holds whole files; both relative to the task folder.
What has been offered is read from the history. Must not know whether a patch applies: that is the judge's to say.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from keepfast.errors import TaskError
from keepfast.model import Files, Patch, Proposal, Task
from keepfast.propose.base import Brief, settled

FOLDER = "deck"


class DeckProposer(Struct, frozen=True):
    name: str = "deck"

    def propose(self, brief: Brief) -> Proposal | None:
        """The first entry that had no turn yet. TaskError for an entry that cannot be read."""
        for entry in entries(brief.task):
            source = f"{FOLDER}/{entry.name}"
            if not settled(e for e in brief.history if e.source == source):
                return _proposal(entry, source, self.name)
        return None


def entries(task: Task) -> tuple[Path, ...]:
    """Patches and folders of the deck, by name; none when there is no deck. Other files and hidden ones are not entries."""
    folder = Path(task.folder) / FOLDER
    if not folder.is_dir():
        return ()
    found = (p for p in folder.iterdir() if not p.name.startswith("."))
    return tuple(sorted((p for p in found if p.is_dir() or p.suffix in (".patch", ".diff")), key=lambda p: p.name))


def _proposal(entry: Path, source: str, proposer: str) -> Proposal:
    if entry.is_dir():
        return Proposal(_slug(entry.name), proposer, _files(entry), source)
    diff = _text(entry)
    return Proposal(_title(diff) or _slug(entry.stem), proposer, Patch(diff), source)


def _files(entry: Path) -> Files:
    paths = sorted(p for p in entry.rglob("*") if p.is_symlink() or not p.is_dir())
    return Files(tuple((p.relative_to(entry).as_posix(), _bytes(p)) for p in paths))


def _bytes(path: Path) -> bytes:
    if path.is_symlink() or not path.is_file():
        raise _unreadable(path, "not an ordinary file, so it cannot be part of a deck", "put a copy of the file in its place")
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}", "make it readable, or take it out of the deck") from None


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"not UTF-8 at byte {error.start}", "save the patch as UTF-8") from None


def _unreadable(path: Path, what: str, next_step: str) -> TaskError:
    return TaskError(what, where=f"{FOLDER}/{path.name}", next_step=next_step)


def _title(diff: str) -> str:
    """The first line of prose above the diff, as `git format-patch` or a human writes it; empty when there is none."""
    for line in diff.splitlines():
        if line.startswith(("diff ", "--- ", "index ")):
            return ""
        text = re.sub(r"^(Subject:)?\s*(\[PATCH[^]]*\])?[#\s]*", "", line).strip()
        if text and not line.startswith(("From ", "From:", "Date:")):
            return text
    return ""


def _slug(name: str) -> str:
    """`006-remember-rows` as words: remember rows."""
    number, _, words = name.partition("-")
    return (words if number.isdigit() and words else name).replace("-", " ")
