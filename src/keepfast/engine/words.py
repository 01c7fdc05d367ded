"""Numbers of an end-to-end proof as words: for sentences that travel inside a record. Knows estimates only."""

from __future__ import annotations

import math

from keepfast.model import Estimate, percent

FAR = 25.0  # log-ratios beyond this are shown as this: exp() must not overflow


def percent_of(e: Estimate) -> str:
    """`+3.1 % [2.8, 3.4]`: per cent more steps a second, with the interval."""
    return f"{signed(e.d)} % [{signed(e.high)[1 if e.high <= 0 else 0 :]}, {signed(e.low)[1 if e.low <= 0 else 0 :]}]"


def signed(d: float) -> str:
    """A log-ratio as a gain in per cent."""
    return f"{round(percent(_near(d)), 1) + 0.0:+.1f}"


def more(d: float) -> str:
    """A log-ratio as extra time in per cent."""
    return f"{round(math.expm1(_near(d)) * 100, 1) + 0.0:+.1f}"


def plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _near(d: float) -> float:
    return min(FAR, max(-FAR, d))
