"""When to look at the calibration again: every so many evaluations, and when the champion's own time has drifted.

Times are taken relative to the sentinel, so that a core that runs slower as a whole is no drift. Must not know how anything is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from keepfast.model import Round

EVERY = 20  # evaluations between two looks
DRIFT = 0.02  # of the champion's time over the sentinel's
REST = 5  # evaluations after a look before drift may ask for the next


class Watch:
    def __init__(self) -> None:
        self.evaluations = self.looked = 0
        self.drifted = False
        self.pace: dict[str, float] = {}

    def due(self) -> bool:
        """Count an evaluation; whether to look before it."""
        self.evaluations += 1
        due = self.evaluations % EVERY == 0 or (self.drifted and self.evaluations - self.looked >= REST)
        if due:
            self.looked, self.drifted = self.evaluations, False
        return due

    def saw(self, champion: str, rounds: Sequence[Round]) -> None:
        """Take the champion's times in these rounds, as the opponent, into account."""
        times = [math.log(c.opponent_ns / r.sentinel_ns) for r in rounds if r.sentinel_ns > 0 for c in r.cases[:1]]
        if not times:
            return
        now = median(times)
        if abs(now - self.pace.setdefault(champion, now)) > DRIFT:
            self.drifted, self.pace[champion] = True, now
