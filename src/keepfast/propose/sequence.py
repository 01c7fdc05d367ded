"""One proposer after the other, and how they are called on the command line.

Owns the order and the names. Must not know what any of them does.
"""

from __future__ import annotations

from msgspec import Struct

from keepfast.errors import UsageError, nearest
from keepfast.model import Proposal
from keepfast.propose.base import Brief, Proposer
from keepfast.propose.deck import DeckProposer
from keepfast.propose.search import TRIALS, SearchProposer

NAMES = ("deck", "search", "random")


class Sequence(Struct, frozen=True):
    """The first of `proposers` that still has something. All are asked every time, as a new champion may give one new work."""

    proposers: tuple[Proposer, ...]

    @property
    def name(self) -> str:
        return ",".join(p.name for p in self.proposers)

    def propose(self, brief: Brief) -> Proposal | None:
        return next((found for p in self.proposers if (found := p.propose(brief)) is not None), None)


def named(text: str, trials: int = TRIALS) -> Proposer:
    """The proposer that `--proposer` means: a name, or several in order, as in `deck,search`. UsageError for an unknown one."""
    names = [part.strip() for part in text.split(",")]
    unknown = next((n for n in names if n not in NAMES), None)
    if unknown is not None:
        what = f"unknown proposer `{unknown}`.{nearest(unknown, NAMES)}"
        raise UsageError(what, where="--proposer", next_step=f"known: {', '.join(NAMES)}")
    made = tuple(_one(n, trials) for n in names)
    return made[0] if len(made) == 1 else Sequence(made)


def _one(name: str, trials: int) -> Proposer:
    if name == "deck":
        return DeckProposer()
    return SearchProposer("tpe" if name == "search" else "random", trials)
