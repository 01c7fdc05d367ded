"""What a proposer is, what it is told, what it may ask the run for, and how a structure is named.

Owns the brief, the protocols and the hash that tells structure from numbers. Must not know the judge, the ledger or git.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from keepfast.model import Candidate, Event, Experiment, File, Files, Idea, Kind, Proposal, Task

VOIDS = 3  # attempts that the machine may spoil before a proposal has had its turn


class Desk(Protocol):
    """What a proposer may ask of the run while it works."""

    def tell(self, event: Event) -> None:
        """Write an event down at once, a turn with what it cost."""

    def idea(self, words: str) -> Idea:
        """Add an idea to the task's, marked as an agent's."""

    def candidate(self, n: int) -> Candidate | None:
        """The files of experiment `n`; None when they were not stored."""

    def now(self) -> float:
        """Unix time."""

    def put(self, data: bytes) -> str:
        """Store bytes; the name to get them by, which a note must carry to keep them."""

    def get(self, name: str) -> bytes | None:
        """Bytes that were stored; None when they are gone."""

    def tried(self, files: tuple[File, ...], who: str) -> str:
        """The judge's words on files that somebody tries: right or wrong, and a screening round. Takes as long as that takes."""

    def merged(self, edit: Files, parent: int) -> Files | str:
        """An edit of experiment `parent` as one of the present champion; or where the two touch the same lines."""


class NoDesk(Struct, frozen=True):
    """Nobody listens: for a brief that is only read."""

    def tell(self, event: Event) -> None:
        return None

    def idea(self, words: str) -> Idea:
        return Idea(1, words, "agent")

    def candidate(self, n: int) -> Candidate | None:
        return None

    def now(self) -> float:
        return 0.0

    def put(self, data: bytes) -> str:
        return ""

    def get(self, name: str) -> bytes | None:
        return None

    def tried(self, files: tuple[File, ...], who: str) -> str:
        return "Nobody judges here."

    def merged(self, edit: Files, parent: int) -> Files | str:
        return edit


class Purse(Struct, frozen=True):
    """Money of the run. `dollars` None: no budget of money was set. `among`: turns about to begin, which share what is left."""

    dollars: float | None = None
    spent: float = 0.0  # what turns under way may spend included
    among: int = 1


class Brief(Struct, frozen=True):
    """All that a proposer is told. `history` is the run's, oldest first; `seed` the run's; `budget_left` is for reading.

    notes   the run's turns and switches, oldest first
    ideas   the task's; `idea` is the one in hand, None for a free hand
    files   where the work begins when that is not the champion: the best candidate of the idea in hand
    fresh   begin a new conversation and leave the old line of thought alone
    asks    when no idea is open, ask for some
    since   unix time at which this session of the run began; `now`: unix time of the brief
    """

    task: Task
    champion: Candidate
    history: tuple[Experiment, ...] = ()
    seed: int = 0
    budget_left: str = ""
    notes: tuple[Event, ...] = ()
    ideas: tuple[Idea, ...] = ()
    idea: Idea | None = None
    files: Candidate | None = None
    fresh: bool = False
    asks: bool = True
    since: float = 0.0
    now: float = 0.0
    purse: Purse = Purse()
    desk: Desk = NoDesk()


class Idle(Struct, frozen=True):
    """Nobody has anything now. `until`: unix time to ask again; None: never in this run, which ends in `state`.

    `news` waits at most so many seconds for something to come back before that; true: ask now.
    """

    why: str
    until: float | None = None
    state: str = "deck-done"
    news: Callable[[float], bool] | None = None


class Proposer(Protocol):
    @property
    def name(self) -> str: ...

    def propose(self, brief: Brief) -> Proposal | Idle | None:
        """The next change to try, or None when nothing is left. The same brief gives the same answer, but for an agent's."""


@runtime_checkable
class Lasting(Protocol):
    """A proposer with something under way between two proposals, which is ended with the run; it takes what is submitted from outside."""

    def close(self, brief: Brief) -> None: ...


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
