"""The table: one line an entry, then what was caught by which layer, what was missed, and false alarms. Must not know how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from keepfast import exits
from keepfast.errors import MachineError
from keepfast.redteam.attempt import Result
from keepfast.redteam.outcome import Outcome
from keepfast.report.escape import line

WIDTH = 46  # of what it tries
SAID = {"caught": "caught", "otherwise": "OTHERWISE", "missed": "MISSED", "passed": "passed", "alarm": "FALSE ALARM", "void": "void"}
MISSED = 1  # exit code


class Summary(Struct, frozen=True):
    """What `--json` prints."""

    schema: str
    cheats: int
    caught: int
    otherwise: int
    missed: int
    known: int  # of the missed: written down as open
    honest: int
    alarms: int
    void: int
    layers: tuple[tuple[str, int], ...]
    seconds: float
    skipped: str
    outcomes: tuple[Outcome, ...]


def head() -> str:
    return f"{'id':<6}{'what it tries, or does':<{WIDTH + 2}}{'verdict':<15}{'layer':<10}{'':<12}{'s':>6}"


def row(one: Outcome) -> str:
    """One line; of what did not end as it should, a second with the reason."""
    words = line(one.words)
    short = words if len(words) <= WIDTH else words[: WIDTH - 3] + "..."
    text = f"{one.id:<6}{short:<{WIDTH + 2}}{line(one.reason)[:14]:<15}{one.layer:<10}{SAID[one.state]:<12}{one.seconds:>6.1f}"
    return text if one.good else f"{text}\n      {one.kind}/{one.name}: {line(one.open or one.detail) or 'nothing ended it'}"


def summary(result: Result) -> Summary:
    found = result.outcomes
    cheats, honest = [o for o in found if not o.honest], [o for o in found if o.honest]
    states = Counter(o.state for o in found)
    missed = [o for o in cheats if o.state == "missed"]
    return Summary(
        schema="keepfast.redteam/1",
        cheats=len(cheats),
        caught=states["caught"],
        otherwise=states["otherwise"],
        missed=len(missed),
        known=sum(bool(o.open) for o in missed),
        honest=len(honest),
        alarms=states["alarm"],
        void=states["void"],
        layers=tuple(Counter(o.layer for o in cheats if o.state == "caught").most_common()),
        seconds=round(result.seconds, 1),
        skipped=result.skipped,
        outcomes=found,
    )


def closing(s: Summary) -> Iterator[str]:
    layers = ", ".join(f"{name} {n}" for name, n in s.layers)
    yield ""
    yield f"cheats   {s.caught} of {s.cheats} caught{f': {layers}' if layers else ''}"
    yield f"missed   {s.missed}{f', {s.known} of them written down as open' if s.known else ''}"
    if s.otherwise:
        yield f"         {s.otherwise} ended for another reason, or elsewhere, than the one written down"
    yield f"honest   {s.honest - s.alarms - _void(s.outcomes)} of {s.honest} passed, {s.alarms} false alarms"
    if s.void:
        yield f"void     {s.void}: the machine was not fit; run it again with the same --out"
    if s.skipped:
        yield f"not run  {s.skipped}"
    yield f"took     {s.seconds:.0f} s"


def _void(outcomes: Sequence[Outcome]) -> int:
    return sum(o.state == "void" for o in outcomes if o.honest)


def code(s: Summary) -> int:
    """0 when nothing is missed and nothing is a false alarm; else 1; 5 when only the machine stood in the way, or nothing was tried."""
    if s.missed or s.otherwise or s.alarms:
        return MISSED
    return MachineError.exit_code if s.void or not s.outcomes else exits.OK
