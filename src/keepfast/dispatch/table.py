"""From findings to a routing table: the one decision of `certify`.

Pure. A cell goes to the custom kernel only if it beats every fallback at every hidden value, each by its own one-sided bound. That is an
intersection-union test: the cell errs with at most the level of one bound, however many there are. Over cells the level is divided by the
number that may ever be measured, which is fixed before the first (Bonferroni): with probability 1 - alpha no measured cell is routed to
a kernel that is not faster there. Bounds use Student's t of the point's own rounds, and never less than the calibrated noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from keepfast.dispatch import regions
from keepfast.dispatch.records import Cell, Finding, Region, Row, Shot, Space, Terms, Worst
from keepfast.model import percent
from keepfast.stats import student_quantile


def bound(shot: Shot, terms: Terms) -> float:
    """One-sided upper bound of the log-ratio at the level of one cell."""
    reach = student_quantile(1 - terms.each, shot.rounds - 1) * max(shot.sd, terms.sigma) / math.sqrt(shot.rounds)
    return shot.d + reach


def rows(space: Space, findings: Iterable[Finding], terms: Terms) -> tuple[Row, ...]:
    """Every cell all of whose points were looked at, in order."""
    known = {f.point: f for f in findings}
    cells: dict[Cell, list[Finding]] = {}
    for point, finding in known.items():
        axes = dict(point)
        cells.setdefault(tuple(axes[name] for name in space.names), []).append(finding)
    whole = {cell: found for cell, found in cells.items() if all(point in known for point in space.points(cell))}
    return tuple(_row(cell, whole[cell], terms) for cell in sorted(whole))


def won(made: Sequence[Row]) -> dict[Cell, bool]:
    return {row.cell: row.custom for row in made}


def _row(cell: Cell, found: Sequence[Finding], terms: Terms) -> Row:
    worst = worst_of(found, terms)
    bad = next((f for f in found if f.state != "measured"), None)
    if bad is not None:
        said = {"wrong": "the kernel is wrong here", "no-stock": "stock does not pass here", "void": "not measured"}[bad.state]
        return Row(cell, False, f"{said}: {bad.detail}", worst)
    if worst is None:
        return Row(cell, False, "there is nothing to compare with", worst)
    if worst.high < -terms.margin:
        return Row(cell, True, "beats every fallback at every hidden value", worst)
    return Row(cell, False, "slower" if worst.d > terms.margin else "not shown to be faster", worst)


def worst_of(found: Iterable[Finding], terms: Terms) -> Worst | None:
    """Of all comparisons the one that bounds the gain least."""
    all_of = [Worst(f.point, s.fallback, s.d, bound(s, terms), s.sd, s.rounds) for f in found for s in f.shots]
    return max(all_of, key=lambda w: w.high, default=None)


def decided(space: Space, made: Sequence[Row]) -> tuple[Region, ...]:
    """The regions that go to the custom kernel."""
    by_cell = {row.cell: row for row in made}
    return tuple(_region(space, box, by_cell) for box in regions.boxes(space, won(made)))


def _region(space: Space, box: regions.Box, by_cell: Mapping[Cell, Row]) -> Region:
    all_of = [worst for cell in box.members if (worst := by_cell[cell].worst) is not None]
    return Region(regions.spans(space, box), len(box.members), max(all_of, key=lambda w: w.high))


def route(made: Sequence[Region], axes: Mapping[str, int]) -> Region | None:
    """The region that holds these values of the visible axes; None: stock."""
    return next((r for r in made if all(span.holds(axes[span.axis]) for span in r.spans)), None)


def gain(worst: Worst) -> str:
    """`+12.3 % (at least +10.9) in 6 rounds against numpy`"""
    return f"{percent(worst.d):+.1f} % (at least {percent(worst.high):+.1f}) in {worst.rounds} rounds against {worst.fallback}"
