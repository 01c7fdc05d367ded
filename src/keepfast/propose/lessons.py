"""What a rejection means for whoever proposed it, in our own words: why, and what to do instead. And the cheats of each proposer.

No word of a candidate, a compiler or a verdict's detail is used: these sentences stand outside fences. Must not know the judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from keepfast.model import SENTENCES, Experiment, Kind, Reason

INSTEAD: dict[Reason, str] = {
    Reason.GUARD: "Change only files that match the editable patterns.",
    Reason.LANGUAGE: "Write the work itself in the language that is asked for, and launch it.",
    Reason.RULE: "Read the rules above again: the one that was broken is named below.",
    Reason.GRAPHS: "Leave everything out of the call that a CUDA graph cannot hold.",
    Reason.NOT_A_PLAN: "Launch kernels, copies and fills on the current stream, and nothing else.",
    Reason.UNSTABLE_PLAN: "Choose what to launch by shape alone.",
    Reason.WRONG: "Do all of the work for every input, timed or not.",
    Reason.STATEFUL: "Compute every call from its own inputs, and keep nothing.",
    Reason.UNSTABLE: "Look for a race, or memory that is read before it is written.",
    Reason.LATE: "Finish all work before the call returns.",
    Reason.OUT_OF_BOUNDS: "Write results only, inside their bounds.",
    Reason.CORES: "Use no more threads than the task allows.",
    Reason.LIMITS: "Use less memory, and start no process.",
    Reason.PROTOCOL: "Leave descriptors that you did not open alone.",
    Reason.HANG: "Wait for nothing that may not come.",
}
MOST = 5  # cheats of a proposer that are told one by one


def because(e: Experiment) -> str:
    """`rejected because the answer depends on earlier calls (stateful). Compute ...`; of any verdict that is no keep."""
    reason = e.verdict.reason
    instead = INSTEAD.get(reason, "") if e.verdict.kind is Kind.REJECT else ""
    cheat = " It counts as a cheat." if e.verdict.cheat else ""
    return f"{_done(e.verdict.kind)} because: {SENTENCES[reason][1]} (`{reason.value}`).{cheat}{f' {instead}' if instead else ''}"


def last(name: str, history: Iterable[Experiment]) -> str:
    """What became of the last change of the proposer `name`; "" before it has one."""
    found = next((e for e in reversed(tuple(history)) if e.proposer == name), None)
    if found is None:
        return ""
    if found.verdict.kept:
        return f"Your last change, experiment {found.n}, was kept."
    return f"Your last change, experiment {found.n}, was {because(found)}"


def cheats(history: Iterable[Experiment], name: str | None = None) -> list[str]:
    """A line for each proposer that was caught (of `name` alone, when given): how often, and its newest ones with their reasons."""
    caught: dict[str, list[Experiment]] = {}
    for e in history:
        if e.verdict.cheat and name in (None, e.proposer):
            caught.setdefault(e.proposer, []).append(e)
    return [f"{len(found)} by `{_plain(who)}`: {_listed(found)}" for who, found in caught.items()]


def _listed(found: list[Experiment]) -> str:
    newest = found[::-1][:MOST]
    said = "; ".join(f"experiment {e.n}, {SENTENCES[e.verdict.reason][1]} (`{e.verdict.reason.value}`)" for e in newest)
    rest = Counter(e.verdict.reason.value for e in found[::-1][MOST:])
    more = ", ".join(f"{n} `{reason}`" for reason, n in rest.items())
    return f"{said}{f'; before those {more}' if more else ''}."


def _done(kind: Kind) -> str:
    return {Kind.REJECT: "rejected", Kind.REVERT: "reverted", Kind.SUSPECT: "put aside as suspect"}.get(kind, "not judged")


def _plain(name: str) -> str:
    """A proposer's name as one word: the human chooses it, and a roster may hold any."""
    kept = "".join(c for c in name if c.isalnum() or c in "-_.:/ ")[:40].strip()
    return kept or "somebody"
