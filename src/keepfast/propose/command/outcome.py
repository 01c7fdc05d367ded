"""How a turn ended, from what was heard and what was found. Pure: facts in, one outcome with its reason out.

Owns the order of the questions and the few patterns of text. Words of the agent itself are looked at only when nothing else decides, and
only when it changed nothing. Must not know any CLI or the file system.
"""

from __future__ import annotations

from msgspec import Struct

from keepfast.propose.agent import Limits, Outcome
from keepfast.propose.command.listen import End, Heard
from keepfast.propose.command.notes import Notes, plain
from keepfast.propose.command.patterns import ASKED, REFUSED, kind, until
from keepfast.propose.command.workspace import Found


class Facts(Struct, frozen=True):
    """What is known when a turn is over. `last_event`: the CLI ends a whole turn with one."""

    notes: Notes
    heard: Heard
    found: Found
    limits: Limits
    now: float
    last_event: bool
    speaks_events: bool


class Judged(Struct, frozen=True):
    outcome: Outcome
    detail: str = ""
    until: float | None = None


def judge(facts: Facts) -> Judged:
    """The first of the questions that has an answer."""
    for question in (_ended_by_us, _own_limit, _failed, _unusable, _cut_off, _edited, _asked, _refused):
        if (found := question(facts)) is not None:
            return found
    return Judged(Outcome.NOTHING, "it ended its turn and no editable file differs")


def _ended_by_us(f: Facts) -> Judged | None:
    if f.heard.end is End.STOPPED:
        return Judged(Outcome.STOPPED, "the run ended")
    if f.heard.end is End.MONEY:
        return Judged(Outcome.OVER_BUDGET, f"ended at {f.notes.dollars or 0.0:.2f} dollars; its limit was {f.limits.dollars or 0.0:.2f}")
    if f.heard.end is End.TURNS:
        return Judged(Outcome.TIMED_OUT, f"ended after {f.limits.turns} steps, its limit")
    if f.heard.end is End.STUCK:
        return _of_errors(f)
    return Judged(Outcome.TIMED_OUT, f"ended after {f.limits.seconds:g} s, its limit") if f.heard.end is End.TIME else None


def _own_limit(f: Facts) -> Judged | None:
    if f.notes.spent:
        return Judged(Outcome.OVER_BUDGET, "it stopped at its limit of dollars")
    return Judged(Outcome.TIMED_OUT, f"it stopped at its limit of {f.limits.turns} turns") if f.notes.turned_out else None


def _failed(f: Facts) -> Judged | None:
    """It says so, or its exit status does."""
    return _of_errors(f) if f.notes.failed or f.heard.status != 0 else None


def _of_errors(f: Facts) -> Judged:
    said = " ".join(f.notes.errors[-3:]) or f.heard.errors[-2000:] + f.heard.words[-2000:]
    detail = plain(f.notes.errors[-1], 300) if f.notes.errors else _last_line(f)
    found = kind(f.notes.status, said)
    if found is Outcome.RATE_LIMITED:
        return Judged(found, detail, until(said, f.now, f.notes.resets, f.notes.retry_s))
    if found is not None:
        return Judged(found, detail)
    if f.notes.denied or ASKED.search(said):
        return Judged(Outcome.PERMISSION, detail)
    if REFUSED.search(f"{said} {f.notes.said}".replace("\u2019", "'")) and not f.found.changed:
        return Judged(Outcome.REFUSED, detail)  # some end with an error when their model declines
    return Judged(Outcome.CRASHED, f"{_status(f.heard.status)}: {detail}" if detail else _status(f.heard.status))


def _unusable(f: Facts) -> Judged | None:
    return Judged(Outcome.MALFORMED, f.found.offence) if f.found.offence else None


def _cut_off(f: Facts) -> Judged | None:
    """It ended with status 0, and yet not at the end."""
    if not f.speaks_events or f.notes.finished or (f.notes.events and not f.last_event):
        return None
    if f.notes.events == 0:
        return Judged(Outcome.MALFORMED, f"it printed no event that could be read; its last words: {_last_line(f) or 'none'}")
    return Judged(Outcome.CRASHED, "it ended without the event that ends a turn")


def _edited(f: Facts) -> Judged | None:
    left = f"left out: {', '.join(f.found.left_out)}" if f.found.left_out else ""
    return Judged(Outcome.EDITED, left) if f.found.changed else None


def _asked(f: Facts) -> Judged | None:
    return Judged(Outcome.PERMISSION, f"it was not allowed: {', '.join(f.notes.denied[:3])}") if f.notes.denied else None


def _refused(f: Facts) -> Judged | None:
    found = REFUSED.search(f.notes.said.replace("\u2019", "'"))
    return Judged(Outcome.REFUSED, f"it says: {plain(f.notes.said, 200)}") if found else None


def _last_line(f: Facts) -> str:
    lines = [line for text in (f.heard.words, f.heard.errors) for line in text.splitlines() if line.strip()]
    return plain(lines[-1], 300) if lines else ""


def _status(status: int) -> str:
    return f"ended by signal {-status}" if status < 0 else f"exit status {status}" if status else "it says that it failed"
