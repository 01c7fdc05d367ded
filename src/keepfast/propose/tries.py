"""What a try within a turn is answered, in words, and how many there were. Must not know how one is judged."""

from __future__ import annotations

from collections.abc import Iterable

from keepfast.model import SENTENCES, Event, Kind, Reason, Verdict

CUT = 2_000  # characters of what a compiler or a comparison said


def said(verdict: Verdict, champion: int) -> str:
    """For whoever tried: what is wrong, or that it is right and what one round showed. Never a promise: a try decides nothing."""
    sentence, detail = SENTENCES[verdict.reason][1], verdict.detail[:CUT]
    if verdict.reason is Reason.TRIED:
        return f"It is right. Against experiment {champion}, the kernel to beat: {detail}; plus is faster. This is no verdict."
    if verdict.kind is Kind.VOID:
        return f"The machine was not fit to judge it now: {detail}. Ask again in a while."
    if verdict.reason is Reason.NO_CHANGE:
        return "The files are those of the kernel to beat: nothing is changed."
    return f"{verdict.kind}: {sentence}{': ' if detail else ''}{detail}"


def counted(notes: Iterable[Event]) -> int:
    """How often the judge was asked by a try: each time counts as an experiment of the budget."""
    return sum(e.kind == "try" and bool(dict(e.numbers).get("judged")) for e in notes)
