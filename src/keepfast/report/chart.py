"""The progress chart as numbers and shapes: best so far against experiments. Geometry only; the template writes the SVG.

Above the axis everything has a measured speed; an experiment without one has a lane below it. Verdicts differ by shape as
well as by colour (Okabe-Ito). Marks that would cover each other become one mark that says how many it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from keepfast.model import Direct, Experiment, Kind
from keepfast.report import book as books
from keepfast.report import numbers, text
from keepfast.report.book import Book
from keepfast.report.escape import line

WIDTH, HEIGHT = 980, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 950, 16, 286
LANES = {Kind.REVERT: 312, Kind.REJECT: 334, Kind.SUSPECT: 356}
GRAIN = 3  # marks of one kind closer than this many pixels are merged


class Mark(Struct, frozen=True):
    kind: str
    x: float
    y: float
    title: str


class Bar(Struct, frozen=True):
    """A direct measurement: a square at y, whiskers from `top` to `bottom`."""

    x: float
    y: float
    top: float
    bottom: float
    title: str


class Level(Struct, frozen=True):
    """A horizontal line: goal, baseline, or a tick of the y axis."""

    y: float
    label: str
    kind: str = "tick"


class Tick(Struct, frozen=True):
    x: float
    label: str


class Chart(Struct, frozen=True):
    path: str  # the SVG path of best so far
    marks: tuple[Mark, ...]
    bars: tuple[Bar, ...]
    levels: tuple[Level, ...]
    ticks: tuple[Tick, ...]
    summary: str  # the chart in words, for those who cannot see it


class Scale(Struct, frozen=True):
    """Experiment number to x, log-ratio against the start to y (logarithmic in speedup)."""

    last: int
    low: float  # log-speedup at the bottom
    high: float

    def x(self, n: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * n / max(1, self.last), 1)

    def y(self, d: float) -> float:
        share = (-d - self.low) / (self.high - self.low)
        return round(BOTTOM - (BOTTOM - TOP) * min(1.0, max(0.0, share)), 1)


def draw(book: Book) -> Chart:
    """Pure; 10,000 experiments give at most a few thousand marks."""
    trail = books.trail(book.experiments, book.directs)
    last = max([e.n for e in book.experiments], default=1)
    levels = _levels(book)
    starts = tuple(d for d in book.directs if d.against == "start")
    scale = _scale(last, [p.d for p in trail] + [-math.log(v) for v, _, _ in levels] + [d.estimate.low for d in starts])
    stands = {p.n: p.d for p in trail}
    return Chart(
        path=_path(scale, trail),
        marks=_marks(book.experiments, stands, scale),
        bars=tuple(_bar(d, scale) for d in starts),
        levels=(*_axis(scale), *(Level(scale.y(-math.log(v)), label, kind) for v, label, kind in levels)),
        ticks=tuple(Tick(scale.x(n), f"{n:,}") for n in _steps(last)),
        summary=_summary(book),
    )


def _levels(book: Book) -> list[tuple[float, str, str]]:
    goal = books.goal_over_start(book)
    lines = [(goal, f"goal {goal:.2f}x", "goal")] if goal else []
    passed = [(numbers.ratio(b.estimate.d), f"baseline {line(b.name)}", "baseline") for b in book.baselines if b.ok and b.estimate]
    return lines + sorted(passed, reverse=True)[:3]


def _scale(last: int, ds: list[float]) -> Scale:
    speeds = [-d for d in ds if math.isfinite(d)] + [0.0]
    low, high = min(speeds), max(speeds)
    room = max(0.02, 0.08 * (high - low))
    return Scale(last=last, low=low - 2 * room, high=high + room)


def _path(scale: Scale, trail: tuple[books.Point, ...]) -> str:
    parts = [f"M{scale.x(0)} {scale.y(0.0)}"]
    for point in trail[1:]:
        parts.append(f"H{scale.x(point.n)}V{scale.y(point.d)}")
    return "".join([*parts, f"H{RIGHT}"])


def _marks(experiments: tuple[Experiment, ...], stands: dict[int, float], scale: Scale) -> tuple[Mark, ...]:
    groups: dict[tuple[str, int, int], list[tuple[Experiment, float, float]]] = {}
    now = 0.0
    for e in books.tried(experiments):
        before, now = now, stands.get(e.n, now)
        x, y = scale.x(e.n), _height(e, before, now, scale)
        if y is not None:
            groups.setdefault((e.verdict.kind.value, round(x / GRAIN), round(y / GRAIN)), []).append((e, x, y))
    marks = [_mark(kind, group) for (kind, _, _), group in groups.items()]
    return tuple(sorted(marks, key=lambda m: (m.kind in ("keep", "suspect"), m.x)))


def _height(e: Experiment, before: float, now: float, scale: Scale) -> float | None:
    """On the curve for a keep, at its own measured speed for a revert that was timed, else in the lane of its kind."""
    verdict = e.verdict
    if verdict.kind is Kind.KEEP:
        return scale.y(now)
    own = verdict.test.d if verdict.test else verdict.screen
    if verdict.kind is Kind.REVERT and own is not None:
        return scale.y(before + own)
    lane = LANES.get(verdict.kind)
    return float(lane) if lane else None


def _mark(kind: str, group: list[tuple[Experiment, float, float]]) -> Mark:
    first, x, y = group[0]
    if len(group) == 1:
        return Mark(kind, x, y, line(f"experiment {first.n}: {kind}, {text.result(first)}: {text.sentence(first)}"[:300]))
    return Mark(kind, x, y, f"experiments {first.n} to {group[-1][0].n}: {len(group)} of verdict {kind}")


def _bar(d: Direct, scale: Scale) -> Bar:
    e = d.estimate
    number = f"{numbers.speedup(e)} over start {numbers.interval(e)}, {numbers.count(e.rounds, 'round')}"
    title = f"direct measurement of experiment {d.n}: {number}"
    return Bar(scale.x(d.n), scale.y(e.d), scale.y(e.low), scale.y(e.high), title)


def _axis(scale: Scale) -> Iterable[Level]:
    """Round speedups between bottom and top, at most about eight."""
    low, high = math.exp(scale.low), math.exp(scale.high)
    for step in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100):
        values = [round(step * i, 2) for i in range(math.ceil(low / step), math.floor(high / step) + 1)] if (high - low) / step < 9 else []
        if values:
            return [Level(scale.y(-math.log(v)), f"{v:g}x") for v in values if v > 0]
    return [Level(scale.y(0.0), "1x")]


def _steps(last: int) -> list[int]:
    """Round experiment numbers from 0 to `last`, at most about ten."""
    size = 10 ** max(0, math.floor(math.log10(max(1, last))) - 1)
    step = next(s * size for s in (1, 2, 5, 10, 20, 50, 100) if last / (s * size) <= 10)
    return list(range(0, last + 1, step))


def _summary(book: Book) -> str:
    total = text.total_text(books.total(book.experiments, book.directs))
    return line(f"Speedup of the champion over the start against experiments. {total}. {text.tally_line(books.tally(book.experiments))}.")
