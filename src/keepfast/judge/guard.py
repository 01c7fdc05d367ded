"""The first rung: does the change touch only what it may, in a shape that is safe to materialise?

Works on names and sizes. What it finds in the text of a source are facts for the reader, never a verdict: walls and
behaviour decide.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath

from msgspec import Struct

from keepfast.model import Candidate, Fact, File, Reason, Task
from keepfast.task.paths import matches_any

MAX_FILE = 2 << 20
MAX_TOTAL = 16 << 20
MAX_FILES = 500
MAX_DEPTH = 20
WORTH_A_LOOK = (
    "pthread_create",
    "clone",
    "fork",
    "setitimer",
    "timer_create",
    "signal",
    "sigaction",
    "ptrace",
    "socket",
    "mmap",
    "open",
    "system",
)


class Refused(Struct, frozen=True):
    reason: Reason
    detail: str


def check(task: Task, candidate: Candidate, champion: Candidate) -> Refused | tuple[Fact, ...]:
    """The first offence, or facts about the change."""
    if len(candidate.files) > MAX_FILES:
        return Refused(Reason.TOO_BIG, f"{len(candidate.files)} files; a candidate may have {MAX_FILES}")
    total = sum(len(f.data) for f in candidate.files)
    if total > MAX_TOTAL:
        return Refused(Reason.TOO_BIG, f"{total / 1e6:.1f} MB of source; a candidate may have {MAX_TOTAL / 1e6:.0f} MB")
    seen: dict[str, str] = {}
    for file in candidate.files:
        if offence := _path(task, file.path, seen) or _content(file):
            return offence
    return facts(candidate, champion)


def _path(task: Task, path: str, seen: dict[str, str]) -> Refused | None:
    name = unicodedata.normalize("NFC", path)
    parts = PurePosixPath(name).parts
    if not name or name != path or name.startswith("/") or "\\" in name or "\0" in name or ".." in parts or len(parts) > MAX_DEPTH:
        return Refused(Reason.GUARD, f"{path!r} is not a plain relative path")
    if any(part.casefold().startswith(".git") for part in parts):
        return Refused(Reason.GUARD, f"{path} belongs to git")
    folded = name.casefold()
    if folded in seen:
        return Refused(Reason.GUARD, f"{path} and {seen[folded]} are the same file where case does not count")
    seen[folded] = name
    if not matches_any(task.editable, name):
        return Refused(Reason.GUARD, f"{path} is not editable; this task lets a change touch {', '.join(task.editable)}")
    return None


def _content(file: File) -> Refused | None:
    if len(file.data) > MAX_FILE:
        return Refused(Reason.TOO_BIG, f"{file.path} has {len(file.data) / 1e6:.1f} MB; a file may have {MAX_FILE / 1e6:.0f} MB")
    if b"\0" in file.data:
        return Refused(Reason.GUARD, f"{file.path} is binary; only text may be changed")
    return None


def facts(candidate: Candidate, champion: Candidate) -> tuple[Fact, ...]:
    """How much changed, and calls in the new text that a reader should know of."""
    before = {f.path: f.data for f in champion.files}
    changed = [f for f in candidate.files if before.get(f.path) != f.data]
    gone = [path for path in before if path not in {f.path for f in candidate.files}]
    added, removed = _lines(changed, before)
    files = len(changed) + len(gone)
    found = [Fact("change", f"{files} file{'s' if files != 1 else ''}, +{len(added)} -{removed}")]
    words = [w for w in sorted(WORTH_A_LOOK) if any(re.search(rf"\b{w}\s*\(".encode(), line) for line in added)]
    return (*found, Fact("calls", ", ".join(words))) if words else tuple(found)


def _lines(changed: list[File], before: dict[str, bytes]) -> tuple[list[bytes], int]:
    """Lines that are new, and how many are gone; moved lines are neither."""
    from collections import Counter

    added: list[bytes] = []
    removed = 0
    for file in changed:
        new, old = Counter(file.data.splitlines()), Counter(before.get(file.path, b"").splitlines())
        added += (new - old).elements()
        removed += (old - new).total()
    return added, removed
