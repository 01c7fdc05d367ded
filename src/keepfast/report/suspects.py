"""Suspects as a queue: which experiments wait for a human, since when and why, and what speaks for and against one, side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence

from keepfast.model import SENTENCES, CaseTime, Experiment, Kind, Reason
from keepfast.report import book as books
from keepfast.report import numbers, text
from keepfast.report.escape import clip, fold, line, pad

CLEARED = "cleared"  # name of the rung that says who cleared a suspect
HEAD = f"{'n':>3}  {'waits':>10}  {'reason':<13} what speaks against it"
INDENT = 33


def waiting(experiments: Sequence[Experiment]) -> tuple[Experiment, ...]:
    """Suspects that nobody has cleared, oldest first."""
    cleared = {e.tree for e in experiments if e.verdict.reason is Reason.CLEARED}
    return tuple(e for e in experiments if e.verdict.kind is Kind.SUSPECT and e.tree not in cleared)


def table(experiments: Sequence[Experiment], now: float | None = None, columns: int = text.COLUMNS) -> list[str]:
    """What `keepfast log --suspect` prints. `experiments`: the whole run's; `now`: unix time."""
    queue, best = waiting(experiments), books.champion(experiments)
    if not queue:
        return ["no suspect waits"]
    rows = [one for e in queue for one in _rows(e, best.n if best else 0, time.time() if now is None else now, columns)]
    return [clip(HEAD, columns), *rows, "", "look: keepfast show N --diff   |   clear: keepfast clear N --because WHY"]


def _rows(e: Experiment, champion: int, now: float, columns: int) -> list[str]:
    age = numbers.duration(max(0.0, now - e.started - e.seconds))
    why = f"{e.verdict.detail or SENTENCES[e.verdict.reason][1]} ({e.title})"
    stale = f"; judged against experiment {e.parent}, no longer the champion: offer it again" if e.parent != champion else ""
    first, *rest = fold(line(why + stale), max(20, columns - INDENT))
    return [f"{e.n:>3}  {age:>10}  {e.verdict.reason.value:<13} {first}", *(" " * (INDENT - 1) + one for one in rest)]


def by(experiment: Experiment) -> str:
    """Who cleared it; "" when nobody did or no name was written down."""
    facts = [f.value for rung in experiment.verdict.rungs if rung.name == CLEARED for f in rung.facts if f.name == "by"]
    return facts[0] if facts else ""


# --------------------------------------------------------------------------------------------- evidence, side by side


def evidence(cases: tuple[CaseTime, ...], columns: int) -> list[str]:
    """A line a case: what is claimed, what the opponent took, what the machine allows, and the two ratios."""
    if not cases:
        return []
    head = f"{pad('case', 16)} {'claimed':>9}  {'opponent':>9}  {'limit':>9}  {'of opponent':>11}  {'of limit':>8}"
    return [clip(one, columns) for one in (head, *(_case(case) for case in cases))]


def _case(case: CaseTime) -> str:
    limit = numbers.nanoseconds(case.limit_ns) if case.limit_ns else "not said"
    share = f"{case.subject_ns / case.limit_ns:.2f}x" if case.limit_ns else "-"
    if case.limit_ns and case.subject_ns < case.limit_ns:
        share += " !"
    name = pad(clip(line(case.case), 16), 16)
    times = f"{numbers.nanoseconds(case.subject_ns):>9}  {numbers.nanoseconds(case.opponent_ns):>9}"
    return f"{name} {times}  {limit:>9}  {case.subject_ns / case.opponent_ns:>10.3f}x  {share:>8}"
