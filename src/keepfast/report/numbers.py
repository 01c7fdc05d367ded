"""How numbers are written: gains, speedups, times. Every ratio comes with its interval. Knows the model, not the run.

Log-ratios are negative when the subject is faster (see `model`), so the interval turns round: `percent(high)` is the low end.
"""

from __future__ import annotations

import math
from datetime import datetime

from keepfast.model import Estimate, percent

FAR = 25.0  # log-ratios beyond this are shown as this: no clock tells them apart, and exp() must not overflow


def percent_of(d: float) -> float:
    """As `model.percent`, for any float."""
    return percent(_near(d))


def ratio(d: float) -> float:
    """Speedup of a log-ratio, for any float."""
    return math.exp(-_near(d))


def _near(d: float) -> float:
    return min(FAR, max(-FAR, d))


def gain(e: Estimate) -> str:
    """`+41.8 % [41.1, 42.5]`: per cent more calls a second than the opponent, with the interval."""
    low, high = percent_of(e.high), percent_of(e.low)
    places = _places(high - low)
    return f"{_signed(percent_of(e.d), places)} % [{low:.{places}f}, {high:.{places}f}]"


def bare_gain(d: float) -> str:
    """`-0.2 %`: a gain without an interval, for a single round; say so beside it."""
    return f"{_signed(percent_of(d), 1)} %"


def speedup(e: Estimate) -> str:
    """`3.12x`, more digits when the interval is narrow."""
    return f"{ratio(e.d):.{_speed_places(e)}f}x"


def interval(e: Estimate) -> str:
    """The interval of the speedup, `[3.07, 3.17]`."""
    places = _speed_places(e)
    return f"[{ratio(e.high):.{places}f}, {ratio(e.low):.{places}f}]"


def spread(sd: float) -> str:
    """A standard deviation of log-ratios in per cent, `0.6 %`."""
    value = 100.0 * sd
    return f"{value:.2g} %" if 0 < value < 0.1 else f"{value:.1f} %"


def count(n: int, what: str, many: str = "") -> str:
    """`1 round`, `6 rounds`."""
    return f"{n:,} {what if n == 1 else many or what + 's'}"


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `1m04s`, `7 h 40 min`."""
    if not math.isfinite(seconds):
        return "?"
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def nanoseconds(ns: float) -> str:
    """`18.8 us`, `9.02 ms`: three digits and the unit that fits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= 0.9995 * size:
            return f"{_three(ns / size)} {unit}"
    return f"{_three(ns)} ns"


def clock(unix: float) -> str:
    """Local time of day with the date, `30 Nov 22:41`."""
    t = datetime.fromtimestamp(unix)
    return f"{t.day} {t:%b %H:%M}"


def _three(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _signed(value: float, places: int) -> str:
    shown = f"{value:+.{places}f}"
    return shown[1:] if float(shown) == 0 else shown


def _places(width: float) -> int:
    if not math.isfinite(width) or width >= 20:
        return 0
    return 1 if width >= 0.2 else 2


def _speed_places(e: Estimate) -> int:
    return 3 if ratio(e.low) - ratio(e.high) < 0.01 else 2
