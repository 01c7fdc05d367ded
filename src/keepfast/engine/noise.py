"""How far stock is from stock: what `keepfast e2e --aa` measured, and how later proofs in the same setting use it.

Owns what makes two accounts of one kind, and the width below which no interval of them may be. Pure. Must not know engines, outcomes or
the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from keepfast import stats
from keepfast.engine.base import AGAIN, STOCK, Account
from keepfast.engine.laps import TAIL, Times
from keepfast.model import Estimate

WHOLE = "all cells"
FREE = ("tokens", "float32", "fill")  # settings that change no time of a step


class Spread(Struct, frozen=True):
    """Stock against stock in one cell, over `rounds`: SD between rounds and mean of the log-ratios, which should be 0."""

    cell: str
    sd: float
    offset: float
    rounds: int


class Noise(Struct, frozen=True):
    """One A/A: whose, and the spread of each cell; of all cells together last."""

    key: str
    spreads: tuple[Spread, ...]


class Floors(Struct, frozen=True):
    """What is known of noise when an account is judged. Without anything an interval is that of its own rounds."""

    spreads: tuple[Spread, ...] = ()

    def of(self, cell: str) -> Spread | None:
        return next((s for s in self.spreads if s.cell == cell), None)

    def whole(self, cells: Sequence[str]) -> Spread | None:
        """Of the mean of these cells: no more than the mean of theirs. None when one is not known."""
        known = [s for cell in cells if (s := self.of(cell)) is not None]
        if not known or len(known) < len(cells):
            return None
        offset = stats.mean([abs(s.offset) for s in known])
        return Spread(WHOLE, stats.mean([s.sd for s in known]), offset, min(s.rounds for s in known))


def reach(values: Sequence[float], spread: Spread | None, alpha: float) -> float:
    """Distance from the mean to its one-sided bound: that of the values' own SD, and never less than what stock feigned against itself,
    offset and SD, which few rounds know poorly too."""
    own = stats.half_width(values, 0.0, alpha)
    if spread is None or spread.rounds < 2:
        return own
    feigned = stats.student_quantile(1 - alpha, spread.rounds - 1) * spread.sd / math.sqrt(len(values))
    return max(own, abs(spread.offset) + feigned)


def estimate(values: Sequence[float], opponent: str, spread: Spread | None, alpha: float) -> Estimate:
    """Mean of log-ratios with its two-sided interval."""
    centre, wide = stats.mean(values), reach(values, spread, alpha / 2)
    return Estimate(centre, centre - wide, centre + wide, stats.sample_sd(values), len(values), opponent)


# ------------------------------------------------------------------------------------------------ of an account


def key(account: Account) -> str:
    """Machine, engine, versions and settings: what has to be equal for noise to be the same."""
    kept = [(name, value) for name, value in account.settings if name not in FREE and not name.startswith("arm ")]
    return msgspec.json.encode((account.engine, account.model, account.machine, account.versions, kept)).decode()


def measured(account: Account) -> Noise:
    """Of an account with stock in both arms."""
    times = Times(account, AGAIN if AGAIN in account.arms else next(a for a in account.arms if a != STOCK))
    rows = [(c.name, times.ratios(c.name)) for c in account.cells]
    found = [Spread(name, stats.sample_sd(v), stats.mean(v), len(v)) for name, v in rows if v]
    whole = times.whole(1)
    end = (Spread(WHOLE, stats.sample_sd(whole), stats.mean(whole), len(whole)),) if whole else ()
    return Noise(key(account), (*found, *end))


def floors(account: Account, seen: Iterable[Noise]) -> Floors:
    """The last of each cell that was measured in the setting of this account."""
    mine, found = key(account), dict[str, Spread]()
    for noise in seen:
        found |= {s.cell: s for s in noise.spreads if s.cell != WHOLE} if noise.key == mine else {}
    return Floors(tuple(found.values()))


def said(account: Account, floors: Floors) -> str:
    """What a reader should know of it: cells for which it was never measured, or ""."""
    lacking = [c.name for c in account.cells if c.phase != TAIL and floors.of(c.name) is None]
    if not lacking:
        return ""
    return f"stock against stock was not measured at {', '.join(lacking)}: keepfast e2e --aa tells what this machine feigns"
