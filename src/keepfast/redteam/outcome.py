"""What came of an entry, in the words of the table. Must not know how it was tried."""

from __future__ import annotations

from msgspec import Struct

from keepfast.model import Kind, Reason, Verdict
from keepfast.redteam.entries import Entry

# caught: ended as said. otherwise: ended, but not as said. missed: a cheat that was not ended. passed: honest, and not refused.
# alarm: honest, and refused. void: the machine was not fit, or lacks something. left out: not tried here.
STATES = ("caught", "otherwise", "missed", "passed", "alarm", "void", "left out")
GOOD = ("caught", "passed", "left out")


class Found(Struct, frozen=True):
    """How an entry ended: by which layer and reason. `refused` is False when nothing stood in its way."""

    refused: bool
    reason: str
    layer: str = ""
    detail: str = ""
    kept: bool = False  # by a judge that timed it
    void: bool = False


class Outcome(Struct, frozen=True):
    """One line of the table. `key` changes with the entry's text, so that a changed entry is tried again."""

    id: str
    name: str
    kind: str
    language: str
    honest: bool
    words: str
    state: str
    reason: str
    layer: str
    detail: str
    seconds: float
    open: str
    key: str

    @property
    def good(self) -> bool:
        return self.state in GOOD


def of_verdict(verdict: Verdict) -> Found:
    """A revert is no refusal of an honest kernel: it was right, and not faster."""
    layer = verdict.rungs[-1].name if verdict.rungs else "guard"
    void = verdict.kind is Kind.VOID
    return Found(verdict.kind is not Kind.KEEP, verdict.reason.value, layer, verdict.detail, kept=verdict.kept, void=void)


REVERTS = ("slower", "no-gain", "ambiguous", "not-confirmed", "case-loss", "same-code")


def state(entry: Entry, found: Found) -> str:
    """One of STATES."""
    if found.void:
        return "void"
    wanted, layers = entry.several("expect"), entry.several("layer")
    if entry.honest:
        return "passed" if _passes(wanted, found) else "alarm"
    if not found.refused:
        return "missed"
    return "caught" if found.reason in wanted and (not layers or found.layer in layers) else "otherwise"


def _passes(wanted: tuple[str, ...], found: Found) -> bool:
    """A timed one may be reverted, unless it says that it has to be kept; what is refused elsewhere is no pass."""
    if "faster" in wanted and found.reason != Reason.START.value:
        return found.kept
    return not found.refused or (found.layer == "time" and found.reason in REVERTS)
