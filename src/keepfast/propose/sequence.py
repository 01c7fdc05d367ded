"""Several proposers, and how they are called on the command line.

Owns the order and the names. Must not know what any of them does. With an agent among them a roster chooses; else the first that still
has something speaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points

from msgspec import Struct

from keepfast.errors import UsageError, nearest
from keepfast.model import Proposal
from keepfast.propose import command
from keepfast.propose.agent import Agent, Limits
from keepfast.propose.agents import AgentProposer, BriefText
from keepfast.propose.base import Brief, Idle, Proposer
from keepfast.propose.deck import DeckProposer
from keepfast.propose.flights import OneAtATime, Threads
from keepfast.propose.outside import NAME
from keepfast.propose.roster import Member, Roster
from keepfast.propose.search import TRIALS, SearchProposer

NAMES = ("deck", "search", "random")
PREFIXES = ("chat:", "anthropic:")
GROUP = "keepfast.proposers"  # entry points: name -> what makes a Proposer


class Sequence(Struct, frozen=True):
    """The first of `proposers` that still has something. All are asked every time, as a new champion may give one new work."""

    proposers: tuple[Proposer, ...]

    @property
    def name(self) -> str:
        return ",".join(p.name for p in self.proposers)

    def propose(self, brief: Brief) -> Proposal | Idle | None:
        idle = None
        for proposer in self.proposers:
            found = proposer.propose(brief)
            if isinstance(found, Proposal):
                return found
            idle = idle or found
        return idle


class Crew(Struct, frozen=True):
    """What agents need besides their names: how a brief is written, who makes an agent of a name, how far a turn may go."""

    text: BriefText
    hire: Callable[[str], Agent]
    limits: Limits = Limits()


def named(text: str, trials: int = TRIALS, crew: Crew | None = None) -> Proposer:
    """The proposer that `--proposer` means: a name, or several, as in `deck,search,claude=2,codex`, with weights for agents.

    UsageError for an unknown one, and for an agent when there is no crew.
    """
    parts = [part.strip() for part in text.split(",")]
    outside = NAME in parts
    agents = sum(is_agent(part) for part in parts)
    if agents or outside:
        members = tuple(_member(part, trials, crew) for part in parts if part != NAME)
        return Roster(members, flights=Threads(agents) if agents else OneAtATime(), outside=outside)
    made = tuple(_one(part, trials) for part in parts)
    return made[0] if len(made) == 1 else Sequence(made)


def is_agent(part: str) -> bool:
    return part.startswith(PREFIXES) or _weighed(part)[0] in command.names()


def _member(part: str, trials: int, crew: Crew | None) -> Member:
    name, weight = _weighed(part) if is_agent(part) else (part, 1.0)
    if not is_agent(part):
        return Member(_one(name, trials), "search" if name in ("search", "random") else "free")
    if crew is None:
        raise UsageError(f"`{name}` is an agent, and there is nobody to write its brief here", where="--proposer")
    return Member(AgentProposer(crew.hire(name), crew.text, crew.limits), weight=weight)


def _weighed(part: str) -> tuple[str, float]:
    """`claude=2` as name and weight. UsageError for a weight of 0."""
    found = re.fullmatch(r"(.+?)=(\d+(?:\.\d+)?)", part)
    if found is None:
        return part, 1.0
    if not (weight := float(found[2])):
        raise UsageError(f"`{part}`: a weight is above 0", where="--proposer", next_step="leave out who is not to be asked")
    return found[1], weight


def _one(name: str, trials: int) -> Proposer:
    """Ours by its name, or one that an installed package offers: an entry point that names a class or function without arguments."""
    if name == "deck":
        return DeckProposer()
    if name in ("search", "random"):
        return SearchProposer("tpe" if name == "search" else "random", trials)
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in offered:
        known = (*NAMES, NAME, *sorted(set(offered) - set(NAMES)), *command.names())
        step = f"known: {', '.join(known)}, chat:MODEL@URL"
        raise UsageError(f"unknown proposer `{name}`.{nearest(name, known)}", where="--proposer", next_step=step)
    found: Proposer = offered[name].load()()
    return found
