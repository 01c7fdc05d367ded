"""The laps of an account seen as one patched arm against stock: log-ratios by cell and round.

Owns how laps become numbers. Must not know rules or outcomes.
"""

from __future__ import annotations

import math
from functools import cached_property

from keepfast import stats
from keepfast.engine.base import STOCK, Account, Graphs, Slot

TAIL = "tail"  # phase of a cell that is a high percentile: it guards, and is no part of the whole
TOGETHER = " + "  # between the tasks of an arm that holds several


class Times:
    """One arm of an account against stock."""

    def __init__(self, account: Account, arm: str) -> None:
        self.account, self.arm = account, arm

    @cached_property
    def _laps(self) -> dict[tuple[str, str], dict[int, float]]:
        """(cell, arm) -> round -> seconds; the median where a round has several laps."""
        found: dict[tuple[str, str], dict[int, list[float]]] = {}
        for lap in self.account.laps:
            if not (math.isfinite(lap.seconds) and lap.seconds > 0):
                raise ValueError(f"{lap.cell}, {lap.arm}, round {lap.round}: {lap.seconds} is no time")
            found.setdefault((lap.cell, lap.arm), {}).setdefault(lap.round, []).append(lap.seconds)
        return {key: {r: stats.median(values) for r, values in rounds.items()} for key, rounds in found.items()}

    def seconds(self, cell: str, arm: str) -> dict[int, float]:
        return self._laps.get((cell, arm), {})

    def typical(self, cell: str, arm: str) -> float:
        return stats.median(list(self.seconds(cell, arm).values()))

    def ratios(self, cell: str) -> list[float]:
        """ln(arm / stock), one for each round that has both."""
        return list(self.by_round(cell).values())

    def by_round(self, cell: str) -> dict[int, float]:
        return self.over(cell, STOCK)

    def over(self, cell: str, other: str) -> dict[int, float]:
        """ln(arm / other) by round."""
        theirs, mine = self.seconds(cell, other), self.seconds(cell, self.arm)
        return {r: math.log(mine[r] / theirs[r]) for r in sorted(theirs.keys() & mine.keys())}

    def whole(self, least: int) -> list[float]:
        return list(self.whole_by_round(least).values())

    def whole_by_round(self, least: int) -> dict[int, float]:
        """The mean over the cells that have at least `least` rounds, in every round that all of them have; tails left out."""
        tables = [self.by_round(c.name) for c in self.account.cells if c.phase != TAIL]
        tables = [t for t in tables if len(t) >= max(1, least)]
        common = sorted(set.intersection(*(set(t) for t in tables))) if tables else []
        return {r: stats.mean([t[r] for t in tables]) for r in common}

    def graphs(self, cell: str, arm: str) -> Graphs | None:
        return next((g for g in self.account.graphs if (g.cell, g.arm) == (cell, arm)), None)

    def graph_share(self, cell: str, arm: str) -> float | None:
        found = self.graphs(cell, arm)
        return found.share if found else None

    def slots(self) -> tuple[Slot, ...]:
        """The slots that this arm fills: those of its tasks; all where the arm does not name tasks."""
        tasks = self.arm.split(TOGETHER)
        mine = tuple(s for s in self.account.slots if s.task in tasks)
        return mine or self.account.slots
