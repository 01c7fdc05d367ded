"""Arithmetic of addresses: which pages a plan touches, where they are reserved, and how two arms lie on the same physical memory.

The driver maps an allocation only as a whole. So the pages of all arms, each arm's in address order, are cut where any arm has a hole;
a piece between two cuts is one allocation, mapped by every arm that reaches so far. Pure; must not know the driver.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from keepfast.gpu.driver import BLOCK, RESERVE
from keepfast.gpu.layout import up
from keepfast.gpu.plan import Segment


def down(n: int, step: int) -> int:
    return n // step * step


def rounded(segments: Iterable[Segment], step: int) -> tuple[Segment, ...]:
    """Segments rounded out to `step`, in order, those that touch or overlap made one."""
    found: list[Segment] = []
    for segment in sorted(segments, key=lambda s: s.address):
        low, high = down(segment.address, step), up(segment.end, step)
        if found and low <= found[-1].end:
            low, high = found[-1].address, max(high, found.pop().end)
        found.append(Segment(low, high - low))
    return tuple(found)


def without(runs: Iterable[Segment], hole: Segment) -> tuple[Segment, ...]:
    """What of `runs` lies outside `hole`."""
    parts = ((r.address, min(r.end, hole.address), max(r.address, hole.end), r.end) for r in runs)
    pairs = ((low, high) for a, b, c, d in parts for low, high in ((a, b), (c, d)))
    return tuple(Segment(low, high - low) for low, high in pairs if high > low)


def pages(segments: Iterable[Segment], sets: Segment) -> tuple[Segment, ...]:
    """Whole pages that segments touch, without those of the sets (which is whole pages itself)."""
    runs = rounded(segments, BLOCK)
    return without(runs, sets) if sets.size else runs


def reservations(runs: Iterable[Segment]) -> tuple[Segment, ...]:
    return rounded(runs, RESERVE)


def pieces(arms: Sequence[Sequence[Segment]]) -> tuple[int, ...]:
    """Sizes of the allocations that carry the runs of every arm."""
    cuts = {0}
    for runs in arms:
        at = 0
        for run in runs:
            at += run.size
            cuts.add(at)
    ends = sorted(cuts)
    return tuple(high - low for low, high in itertools.pairwise(ends))


def spread(runs: Sequence[Segment], sizes: Sequence[int]) -> tuple[Segment, ...]:
    """Where each of the first allocations goes in one arm: as many as its runs hold."""
    found: list[Segment] = []
    left = iter(sizes)
    for run in runs:
        at = run.address
        while at < run.end:
            found.append(Segment(at, next(left)))
            at = found[-1].end
    return tuple(found)
