"""The gain that a kernel's own gain would give to a whole step, beside the measured one.

Owns the prediction and the words for a gap. Must not know outcomes: a gap refuses nothing, it is said.
"""

from __future__ import annotations

import math

from msgspec import Struct

from keepfast.engine.base import STOCK
from keepfast.engine.laps import Times
from keepfast.engine.words import signed
from keepfast.model import Estimate
from keepfast.model.proof import Predicted


class Micro(Struct, frozen=True):
    """The gain of a task's kernel alone, over what stock runs in its slot."""

    task: str
    gain: Estimate


def predict(times: Times, cell: str, measured: Estimate, micros: tuple[Micro, ...]) -> Predicted | None:
    """None where the engine says no kernel times, or nothing is known of a kernel alone."""
    parts = _parts(times, cell, micros)
    step = _step(times, cell)
    if not parts or not step:
        return None
    shares = [(min(1.0, seconds / step), micro.gain) for seconds, micro in parts]
    d, low, high = (_ratio([(share, pick) for share, pick in picked]) for picked in _bounds(shares))
    low, high = min(low, high), max(low, high)
    return Predicted(sum(share for share, _ in shares), d, low, high, _gap(measured, low, high))


def _bounds(shares: list[tuple[float, Estimate]]) -> tuple[list[tuple[float, float]], ...]:
    return tuple([(share, getattr(gain, end)) for share, gain in shares] for end in ("d", "low", "high"))


def _ratio(parts: list[tuple[float, float]]) -> float:
    """ln of the new step over the old one: 1 - sum f + sum f exp(d)."""
    return math.log(max(1e-9, 1 - sum(f * (1 - math.exp(d)) for f, d in parts)))


def _parts(times: Times, cell: str, micros: tuple[Micro, ...]) -> list[tuple[float, Micro]]:
    """Seconds of a stock step that each kernel replaces. Where kernels carry the slot's name (a CPU) that is what the slot took;
    else what stock launches and the patched arm launches less often or not at all, which only tells one kernel's share."""
    stock, slots = times.graphs(cell, STOCK), times.slots()
    if stock is None or not stock.seconds:
        return []
    took = dict(stock.seconds)
    known = [(took[s.name], m) for s in slots for m in micros if m.task == s.task and s.name in took]
    if known:
        return known
    mine = [m for m in micros if m.task in {s.task for s in slots}]
    replaced = _replaced(times, cell)
    return [(replaced, mine[0])] if len(mine) == 1 and len(slots) == 1 and replaced else []


def _replaced(times: Times, cell: str) -> float:
    stock, kept = times.graphs(cell, STOCK), times.graphs(cell, times.arm)
    if stock is None or kept is None:
        return 0.0
    took, before, after = dict(stock.seconds), dict(stock.launches), dict(kept.launches)
    return sum(took.get(name, 0.0) * (1 - min(1.0, after.get(name, 0) / count)) for name, count in before.items() if count)


def _step(times: Times, cell: str) -> float:
    """One stock step: the clock's, or the sum of its kernels where that is more (they overlapped)."""
    stock = times.graphs(cell, STOCK)
    return max(times.typical(cell, STOCK), sum(s for _, s in stock.seconds) if stock else 0.0)


def _gap(measured: Estimate, low: float, high: float) -> str:
    if measured.high < low:
        beyond = "more is gained than its share explains: it changed something else too (launches saved, a neighbour fused, other clocks)"
    elif measured.low > high:
        beyond = "part of the gain is lost: stock had fused or overlapped that work, or the engine's shapes are not the task's cases"
    else:
        return ""
    return f"measured {signed(measured.d)} %, predicted {signed(high)} to {signed(low)} %: {beyond}"
