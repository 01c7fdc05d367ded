"""Edits that were paid for and are not judged yet: the queue between agents and judge.

Owns how an edit is stored with its turn, which of them still wait, and how one becomes a proposal. All of it follows from the ledger, so a
run that was killed has the same queue. Must not know how an edit was made.
"""

from __future__ import annotations

from itertools import islice

import msgspec
from msgspec import Struct

from keepfast.model import Event, Experiment, Files, Proposal, TurnNote
from keepfast.propose.base import Brief

GONE = "its edit is not stored any more"


class Edit(Struct, frozen=True):
    """What a turn left. `parent`: the experiment that `change` is against; `turn`: which of the run's turns it was, so that no two edits
    are the same bytes."""

    proposer: str
    title: str
    source: str
    idea: int | None
    change: Files
    parent: int
    turn: int


def store(edit: Edit, brief: Brief) -> str:
    return brief.desk.put(msgspec.msgpack.encode(edit))


def load(name: str, brief: Brief) -> Edit | None:
    stored = brief.desk.get(name)
    return msgspec.msgpack.decode(stored, type=Edit) if stored is not None else None


def next_turn(brief: Brief) -> int:
    return 1 + sum(e.turn is not None for e in brief.notes)


def waiting(brief: Brief) -> tuple[TurnNote, ...]:
    """Turns whose edit is no experiment and did not go back to its author, oldest first."""
    done = {e.edit for e in brief.history} | {e.about for e in brief.notes if e.kind == "returned"}
    return tuple(t for e in brief.notes if (t := e.turn) is not None and t.edit and t.edit not in done)


def led_to(turn: TurnNote, brief: Brief) -> Experiment | None:
    """The experiment that the turn's edit became: the one in the making when it landed, or one soon after."""
    since = islice(brief.history, max(0, turn.n - 1), None)
    return next((e for e in since if e.edit == turn.edit), None) if turn.edit else None


def returned(name: str, brief: Brief) -> tuple[Event, Edit] | None:
    """The proposer's last edit, when it went back to it and it has not answered yet."""
    last = next((e.turn for e in reversed(brief.notes) if e.turn is not None and e.turn.proposer == name), None)
    event = next((e for e in brief.notes if e.kind == "returned" and last is not None and last.edit and e.about == last.edit), None)
    edit = load(event.about, brief) if event is not None else None
    return (event, edit) if event is not None and edit is not None else None


def proposal(turn: TurnNote, brief: Brief) -> Proposal | str:
    """The edit against the present champion, with everything that its proposer spent since its last experiment; or why it goes back."""
    edit = load(turn.edit, brief)
    if edit is None:
        return GONE
    change = edit.change if edit.parent == brief.champion.n else brief.desk.merged(edit.change, edit.parent)
    if isinstance(change, str):
        return f"experiment {brief.champion.n} was kept meanwhile, and both change the same lines: {change}"
    dollars, tokens = unpaid(edit.proposer, brief)
    return Proposal(edit.title, edit.proposer, change, edit.source, edit.idea, dollars, tokens, turn.edit)


def unpaid(name: str, brief: Brief) -> tuple[float, int]:
    """Dollars and tokens of the proposer's turns since its last experiment: they belong to its next one."""
    last = max((e.n for e in brief.history if e.proposer == name), default=0)
    open_ = [t for e in brief.notes if (t := e.turn) is not None and t.proposer == name and t.n > last]
    return sum(t.dollars or 0.0 for t in open_), sum(t.tokens for t in open_)
