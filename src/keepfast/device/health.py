"""Is this machine fit to judge now? Who else uses its cores, and how steadily they run. Looks only; changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

LOOK_S = 0.5
BUSY_SHARE = 0.05  # of a core: less than this is no neighbour


class Neighbour(Struct, frozen=True):
    """A process that uses a core. `share` of one core over the look, 1.0 is all of it."""

    pid: int
    name: str
    share: float
    core: int


def neighbours(look_s: float = LOOK_S) -> tuple[Neighbour, ...]:
    """Processes other than this one that used more than BUSY_SHARE of a core during the look, busiest first."""
    before, began = _times(), time.monotonic()
    time.sleep(look_s)
    seconds, after = time.monotonic() - began, _times()
    ticks = os.sysconf("SC_CLK_TCK") * seconds
    shares = [(pid, (after[pid][0] - before[pid][0]) / ticks) for pid in after if pid in before and pid != os.getpid()]
    busy = sorted((s for s in shares if s[1] > BUSY_SHARE), key=lambda s: -s[1])
    return tuple(Neighbour(pid, after[pid][1], share, after[pid][2]) for pid, share in busy)


def _times() -> dict[int, tuple[int, str, int]]:
    """pid -> (ticks used, name, last core)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(entry)):
            found[int(entry.name)] = stat
    return found


def _stat(process: Path) -> tuple[int, str, int] | None:
    try:
        text = (process / "stat").read_text(errors="replace")
    except OSError:
        return None  # it has ended meanwhile
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[11]) + int(fields[12]), name, int(fields[36])


def spread(sentinel_ns: Callable[[], float], count: int = 40) -> float:
    """Interquartile range over median of a fixed piece of arithmetic: how steadily this core runs."""
    found = sorted(sentinel_ns() for _ in range(count))
    return (found[3 * count // 4] - found[count // 4]) / found[count // 2]
