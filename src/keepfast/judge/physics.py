"""The physical limit of a case on this machine, from measured ceilings. Faster than that is suspect, not fast."""

from __future__ import annotations

import re

from keepfast.expr import parse
from keepfast.judge.sets import Draw
from keepfast.model import Case, Machine, Task

SLACK = 1.03


def bandwidth(machine: Machine, footprint: int) -> float:
    """Best measured GB/s (copy, read or write) at the largest measured footprint that is not above this one."""
    measured: dict[int, float] = {}
    for name, value in machine.ceilings:
        if match := re.fullmatch(r"(?:copy|read|write)_(\d+)MB_GBps", name):
            size = int(match[1]) << 20
            measured[size] = max(value, measured.get(size, 0.0))
    if not measured:
        return 0.0
    fitting = [size for size in measured if size <= footprint]
    return measured[max(fitting) if fitting else min(measured)]


def work(task: Task, case: Case, own: tuple[float, float]) -> tuple[float, float]:
    """(bytes, flops) a call must at least move and do; 0 where the task does not say. `own`: what limit() of reference.py said."""
    axes = dict(case.axes)
    said = [float(parse(text, list(axes)).value(axes)) if text else 0.0 for text in (task.limit.bytes, task.limit.flops)]
    return own[0] or said[0], own[1] or said[1]


def limit_ns(task: Task, draw: Draw, machine: Machine, count: int) -> float | None:
    """Least time of one call in ns on this machine, or None when the task gives no limit."""
    size, flops = work(task, draw.case, draw.limit)
    footprint = count * (draw.layout.in_bytes + draw.layout.out_bytes)
    speed, rate = bandwidth(machine, footprint), dict(machine.ceilings).get("float32_GFLOPs", 0.0)
    times = [size / speed if speed and size else 0.0, flops / rate if rate and flops else 0.0]
    return max(times) or None


def too_fast(case: Case, ns: float, limit: float | None) -> str:
    """Why this time cannot be, or ""."""
    if limit is None or ns * SLACK >= limit:
        return ""
    return f"case {case.name}: {ns / 1e3:.1f} us a call, the measured ceilings of this machine allow no less than {limit / 1e3:.1f} us"
