"""Findings from the judge as it is: every point is a case of a variant of the task, checked and then timed against each fallback.

Points are measured together; what fails together is measured in halves, so that one point's fault is that point's alone. Must not know
regions, tables or the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from keepfast import shop
from keepfast.dispatch import space
from keepfast.dispatch.records import Axes, Finding, Seen, Shot
from keepfast.errors import MachineError, TaskError
from keepfast.judge.judge import CpuJudge
from keepfast.judge.oracle_records import Job
from keepfast.model import Baseline, BaselineResult, Calibration, Candidate, Case, Direct, Event, Kind, Task

if TYPE_CHECKING:
    from keepfast.judge.gpu.judge import GpuJudge

BATCH = 6  # points that share a build, a check and every round


class Contest(Struct, frozen=True):
    """Who is held against whom. `fallbacks`: stock first."""

    ready: shop.Shop
    champion: Candidate
    calibration: Calibration
    fallbacks: tuple[str, ...]
    rounds: int
    emit: Callable[[Event], None]


def measured(contest: Contest, points: Sequence[Axes]) -> tuple[Finding, ...]:
    """One finding a point, in order."""
    found: list[Finding] = []
    for start in range(0, len(points), BATCH):
        found += _split(contest, points[start : start + BATCH])
    return tuple(found)


def _split(contest: Contest, points: Sequence[Axes]) -> list[Finding]:
    whole = _together(contest, points)
    if len(points) == 1 or not isinstance(whole, Finding):
        return [replace(whole, point=points[0])] if isinstance(whole, Finding) else whole
    half = len(points) // 2
    return _split(contest, points[:half]) + _split(contest, points[half:])


def _together(contest: Contest, points: Sequence[Axes]) -> list[Finding] | Finding:
    """Findings of all points, or what stands in the way of at least one of them."""
    try:
        with _judge(contest, points) as judge:
            begun = judge.begin(contest.champion, contest.calibration)
            if not begun.verdict.kept:
                state = "void" if begun.verdict.kind is Kind.VOID else "wrong"
                return Finding((), state, f"{begun.verdict.reason}: {begun.verdict.detail}")
            return _compared(contest, judge, points, {b.name: b for b in begun.baselines})
    except TaskError as error:
        if len(points) == 1:
            raise
        return Finding((), "void", error.what)
    except MachineError as error:
        return Finding((), "void", error.what)


def _compared(
    contest: Contest, judge: CpuJudge | GpuJudge, points: Sequence[Axes], tried: dict[str, BaselineResult]
) -> list[Finding] | Finding:
    bad = [name for name in contest.fallbacks if not tried[name].ok]
    if bad and len(points) > 1:
        return Finding((), "no-stock", tried[bad[0]].detail)
    if contest.fallbacks[0] in bad:
        return Finding((), "no-stock", f"{contest.fallbacks[0]}: {tried[contest.fallbacks[0]].detail}")
    good = [name for name in contest.fallbacks if name not in bad]
    directs = {name: judge.compare(contest.champion, f"baseline {name}", contest.rounds, False) for name in good}
    absent = tuple(f"{name}: {tried[name].detail}" for name in bad)
    return [Finding(p, "measured", "", tuple(_shot(n, d, space.case(p).name) for n, d in directs.items()), absent) for p in points]


def _shot(name: str, direct: Direct, case: str) -> Shot:
    one = next(c for c in direct.cases if c.case == case)
    return Shot(name, one.estimate.d, one.estimate.sd, one.estimate.rounds, one.subject_ns, one.opponent_ns)


# --------------------------------------------------------------------------------------------- variants of the task


def variant(task: Task, cases: Sequence[Case], fallbacks: Sequence[str]) -> Task:
    """The task with other cases, and no baselines but the fallbacks."""
    known = {b.name: b for b in task.baselines}
    kept: tuple[Baseline, ...] = tuple(known[name] for name in fallbacks)
    return replace(task, cases=tuple(cases), baselines=kept)


@contextmanager
def _judge(contest: Contest, points: Sequence[Axes]) -> Iterator[CpuJudge | GpuJudge]:
    task = variant(contest.ready.task, [space.case(p) for p in points], contest.fallbacks)
    with _opened(contest.ready, task, contest.emit) as judge:
        yield judge


@contextmanager
def _opened(ready: shop.Shop, task: Task, emit: Callable[[Event], None]) -> Iterator[CpuJudge | GpuJudge]:
    """A judge of a variant. On a card with processes of its own: its oracle holds the task."""
    station = None
    if ready.station is not None:
        from keepfast.station import Station

        station = Station(task, ready.walls, ready.station.card)
    ending = closing(station) if station is not None else nullcontext()
    with ending, shop.judge(replace(ready, task=task, station=station), emit, lambda code: None) as judge:
        yield judge


# --------------------------------------------------------------------------------------------- shapes


def seen(ready: shop.Shop, cases: Sequence[Case]) -> tuple[Seen, ...]:
    """How the human's inputs() and reference() lay out each case."""
    with _opened(ready, variant(ready.task, cases, ()), lambda event: None) as judge:
        return tuple(_cpu_seen(judge, case) for case in cases) if isinstance(judge, CpuJudge) else _gpu_seen(judge)


def _cpu_seen(judge: CpuJudge, case: Case) -> Seen:
    (draw,) = judge.reference.draws([Job("make", case, (0,), oracle=False)])
    kinds = {a.name: a.kind for a in judge.task.signature.args}
    tensors = tuple((s.name, s.dtype, s.shape, s.contiguous) for s in draw.layout.slots if kinds.get(s.name, "tensor") == "tensor")
    words = zip((a.name for a in judge.task.signature.args), draw.words, strict=False)
    raw = {name: word.value for name, word in words if word.kind == "raw"}
    texts = {s.name: bytes(draw.in_image[s.start : s.start + s.span]) for s in draw.layout.slots if kinds.get(s.name, "tensor") != "tensor"}
    values = {name: _scalar(kinds[name], value.to_bytes(8, "little")) for name, value in raw.items()}
    values |= {name: _scalar(kinds[name], data) for name, data in texts.items()}
    return Seen(case.axes, tensors, tuple(values.items()))


def _scalar(kind: str, data: bytes) -> int | float | bool | str:
    """A scalar from the bytes that the C ABI holds it in."""
    import struct

    if kind == "str":
        return data.rstrip(b"\0").decode()
    if kind == "float":
        return float(struct.unpack("<d", data)[0])
    return bool(int.from_bytes(data, "little")) if kind == "bool" else int.from_bytes(data, "little", signed=True)


def _gpu_seen(judge: GpuJudge) -> tuple[Seen, ...]:
    from keepfast.gpu.layout import contiguous

    found = []
    for layout in judge.oracle.describe().layouts:
        given = [(g.name, t.dtype, t.shape, t.strides == contiguous(t.shape)) for g in layout.given if (t := g.tensor) is not None]
        made = [(o.name, o.dtype, o.shape, True) for o in layout.outputs]
        scalars = tuple((g.name, g.value) for g in layout.given if g.tensor is None and g.value is not None)
        found.append(Seen(layout.axes, (*given, *made), scalars))
    return tuple(found)
