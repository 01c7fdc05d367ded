"""The exit codes of the commands, in one place. The errors of `errors` carry theirs (1, 2 and 5)."""

from __future__ import annotations

from keepfast.model import Kind
from keepfast.model.proof import Outcome

OK = 0
BUDGET = 7
INTERRUPTED = 130


def of_kind(kind: Kind) -> int:
    """For a command that judges one candidate: `check`."""
    return {Kind.KEEP: OK, Kind.REJECT: 3, Kind.SUSPECT: 4, Kind.VOID: 5, Kind.REVERT: 6}[kind]


def of_state(state: str, goal: bool) -> int:
    """For the end of a run, from `Run.state`; `goal` says whether there was one. Without one, a spent budget is the end asked for."""
    if state == "interrupted":
        return INTERRUPTED
    return BUDGET if goal and state in ("budget", "deck-done") else OK


def of_outcome(outcome: Outcome) -> int:
    """For a command that proves a kernel in an engine: `e2e`. A micro-win only is a revert of its claim, a refusal a reject."""
    return {Outcome.PASSED: OK, Outcome.REFUSED: 3, Outcome.MICRO: 6}[outcome]
