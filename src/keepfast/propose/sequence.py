"""One proposer after the other, and how they are called on the command line.

Owns the order and the names. Must not know what any of them does.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from msgspec import Struct

from keepfast.errors import UsageError, nearest
from keepfast.model import Proposal
from keepfast.propose.base import Brief, Proposer
from keepfast.propose.deck import DeckProposer
from keepfast.propose.search import TRIALS, SearchProposer

NAMES = ("deck", "search", "random")
GROUP = "keepfast.proposers"  # entry points: name -> what makes a Proposer


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
    made = tuple(_one(part.strip(), trials) for part in text.split(","))
    return made[0] if len(made) == 1 else Sequence(made)


def _one(name: str, trials: int) -> Proposer:
    """Ours by its name, or one that an installed package offers: an entry point that names a class or function without arguments."""
    if name == "deck":
        return DeckProposer()
    if name in ("search", "random"):
        return SearchProposer("tpe" if name == "search" else "random", trials)
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in offered:
        known = (*NAMES, *sorted(set(offered) - set(NAMES)))
        raise UsageError(f"unknown proposer `{name}`.{nearest(name, known)}", where="--proposer", next_step=f"known: {', '.join(known)}")
    found: Proposer = offered[name].load()()
    return found
