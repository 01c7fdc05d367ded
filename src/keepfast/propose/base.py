"""What a proposer is, what it is told, and how a structure is named.

Owns the brief, the protocol and the hash that tells structure from numbers. Must not know the judge, the ledger or git.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from keepfast.model import Candidate, Experiment, File, Kind, Proposal, Task

VOIDS = 3  # attempts that the machine may spoil before a proposal has had its turn


class Brief(Struct, frozen=True):
    """All that a proposer is told. `history` is the run's, oldest first; `seed` the run's; `budget_left` is for reading."""

    task: Task
    champion: Candidate
    history: tuple[Experiment, ...] = ()
    seed: int = 0
    budget_left: str = ""


class Proposer(Protocol):
    @property
    def name(self) -> str: ...

    def propose(self, brief: Brief) -> Proposal | None:
        """The next change to try, or None when nothing is left. The same brief gives the same answer."""


def settled(attempts: Iterable[Experiment]) -> bool:
    """Whether these attempts at one proposal were its turn. A void one says nothing about it, but three end the matter."""
    kinds = [a.verdict.kind for a in attempts]
    return len(kinds) >= VOIDS or any(kind is not Kind.VOID for kind in kinds)


def structure_hash(files: tuple[File, ...], tunables_path: str) -> str:
    """sha256 of the files with the values of the tunables taken out: equal for candidates that differ in their numbers only.

    `tunables_path` is relative to the task's root like the paths of `files`; empty when the task has none.
    """
    total = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.path):
        data = _without_values(file.data) if file.path == tunables_path else file.data
        kind = b"l" if file.link else b"x" if file.executable else b"-"
        for part in (file.path.encode("utf-8", "surrogateescape"), kind, data):
            total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()


def _without_values(text: bytes) -> bytes:
    return re.sub(rb"(?m)^(\s*value\s*=).*$", rb"\1", text)
