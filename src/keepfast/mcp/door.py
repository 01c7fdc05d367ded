"""The door of a run that is going on: what is posted into its inbox, and how its answers are found.

Reads the ledger, and writes nothing but posts. Nothing here waits: whoever waits looks again. Must not know who asks.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from keepfast.errors import UsageError
from keepfast.ledger import Ledger
from keepfast.model import Event, Experiment
from keepfast.propose import outside
from keepfast.propose.agent import Changed

if TYPE_CHECKING:
    from keepfast.cli.stand import Stand

LOOK_S = 0.25  # between two looks
ENDED = "the run ended before it answered"


class NotYet(UsageError):
    """A run is being prepared."""


class Door(Struct, frozen=True):
    """`state`: the folder of the ledger."""

    state: Path
    run: str


class Ticket(Struct, frozen=True):
    """What was posted. `since`: the run's last event before that."""

    door: Door
    id: str
    command: str
    since: int


class Answer(Struct, frozen=True):
    """`ok` false: the run did not do what it was asked for, and the words say why."""

    words: str
    ok: bool = True


class Fate(Struct, frozen=True):
    """What became of a submission: its verdict; or why it has none, or none yet (`over` false)."""

    experiment: Experiment | None = None
    words: str = ""
    over: bool = False


def door_of(stand: Stand) -> Door:
    """UsageError when no run of this task is going on; NotYet when one cannot be asked yet."""
    from keepfast.cli.place import PREPARING, said

    folder = stand.task.folder
    holder = stand.ledger.holder() if stand.ledger is not None else None
    if stand.repo is None or holder is None:
        step = "keepfast check   judges once   |   keepfast run TASK --detach"
        raise UsageError("no run is going on that could judge", where=folder, next_step=step)
    if stand.ledger is None or holder.run not in [run.id for run in stand.ledger.runs() if stand.ledger.champion(run.id)]:
        raise NotYet(
            f"{PREPARING} is going on ({said(holder)}), which takes no questions yet", where=folder, next_step="ask again in a while"
        )
    if stand.run is None or stand.run.id != holder.run:
        what = f"run {holder.run} is going on ({said(holder)}), which is about another task, or this one before it was changed"
        raise UsageError(what, where=folder, next_step="keepfast status")
    return Door(stand.repo.state, holder.run)


def ask(door: Door, changed: Changed) -> Ticket:
    """A try. `changed` is against the champion."""
    name = _name("t")
    return _posted(door, name, outside.TRY, outside.encode(outside.Try(name, changed)))


def hand_in(door: Door, changed: Changed, parent: int, title: str, idea: int | None = None) -> Ticket:
    """A submission. `changed` is against experiment `parent`."""
    name = _name("s")
    return _posted(door, name, outside.SUBMIT, outside.encode(outside.Submit(name, changed, parent, title, idea)))


def _name(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(5)}"


def _posted(door: Door, name: str, command: str, argument: str) -> Ticket:
    with Ledger.open(door.state) as ledger:
        events = ledger.events(door.run)
        ledger.post(command, argument, door.run)
    return Ticket(door, name, command, events[-1].id if events else 0)


def answer(ticket: Ticket) -> Answer | None:
    """The words on a try; None while there are none. Looks once more after the run has ended."""
    with Ledger.open(ticket.door.state, readonly=True) as ledger:
        going = _going(ledger, ticket.door)
        events = [s.event for s in ledger.events(ticket.door.run, ticket.since)]
    if found := next((e for e in events if e.kind == "try" and e.about == ticket.id), None):
        return Answer(found.text)
    if why := _ignored(ticket.command, events):
        return Answer(why, ok=False)
    return None if going else Answer(ENDED, ok=False)


def fate(door: Door, name: str, since: int = 0) -> Fate:
    """What became of submission `name`. UsageError when the run that is over never took it."""
    with Ledger.open(door.state, readonly=True) as ledger:
        going = _going(ledger, door)
        events = [s.event for s in ledger.events(door.run, since)]
        turn = next((e.turn for e in events if e.turn is not None and e.turn.session == name), None)
        tried = ledger.experiments(door.run) if turn is not None else ()
    if turn is None:
        why = _ignored(outside.SUBMIT, events) if since else ""
        if not going and not why:
            raise UsageError(f"run {door.run} took no submission `{name}`", next_step="keepfast log")
        return Fate(words=why or "the run has not looked at it yet", over=bool(why))
    if found := next((e for e in tried if turn.edit and e.edit == turn.edit), None):
        return Fate(found, over=True)
    if back := next((e for e in events if e.kind == "returned" and turn.edit and e.about == turn.edit), None):
        return Fate(words=f"it was not judged and comes back to you: {back.text}", over=True)
    return Fate(words="it waits for the judge" if going else f"{ENDED}; it is judged when the run is resumed", over=not going)


def going(door: Door) -> bool:
    with Ledger.open(door.state, readonly=True) as ledger:
        return _going(ledger, door)


def _going(ledger: Ledger, door: Door) -> bool:
    holder = ledger.holder()
    return holder is not None and holder.run == door.run


def _ignored(command: str, events: list[Event]) -> str:
    """What a run says of a command that it cannot obey; it does not say of which one, so the first one is taken."""
    notes = (e.text for e in events if e.kind == "note" and e.text.startswith(f"`{command}") and " was ignored: " in e.text)
    return next((text.partition(" was ignored: ")[2] for text in notes), "")
