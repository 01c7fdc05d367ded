"""A case as the GPU judge works on it: its layout, how many calls are captured, how much is drawn, what it must at least cost.

Owns the arithmetic of memory and of how many calls make a launch. Must not know processes or candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import TaskError
from keepfast.gpu.layout import Layout
from keepfast.gpu.messages import Described, Tolerance
from keepfast.judge.physics import SLACK, work
from keepfast.model import Case, Machine, Task

LAUNCH_US = 1000.0  # a launch lasts about so long where memory allows
LEAST_US = 1.5  # no call is believed to be shorter when calls are counted: a graph node alone costs about this
MOST_CALLS = 512
LEAST_DRAWS, DRAWS, INDEX_DRAWS = 2, 4, 64  # of a bank; block tables and the like are taken whole, so more of them
SHARE_SETS, SHARE_BANKS = 0.15, 0.25  # of the card's memory: sets and results of one case; the banks of all
L2_RESIDENT = 8  # a launch that touches less than so many times the L2 is not held to the bandwidth of memory


class Stage(Struct, frozen=True):
    """`limit`: (bytes, flops) of a call, 0 where nothing is said. `results`: dtype and columns of each result."""

    case: Case
    layout: Layout
    calls: int
    draws: int
    limit: tuple[float, float]
    results: tuple[Tolerance, ...]

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def call_bytes(self) -> int:
        return self.layout.set_bytes + self.layout.out_bytes


def stages(task: Task, described: Described, machine: Machine, memory: int) -> tuple[Stage, ...]:
    """One a case, in the task's order. `memory`: bytes of the card. TaskError when a case cannot fit, or all of them together."""
    made = tuple(_stage(task, described, i, machine, memory) for i in range(len(described.layouts)))
    if _bytes(made) > memory:
        made = tuple(replace(s, draws=LEAST_DRAWS) for s in made)
    if (size := _bytes(made)) > memory:
        step = "make cases smaller, or have fewer: contents of all are drawn at once, and a case at work needs room beside them"
        what = f"{len(made)} cases need {size / 2**30:.1f} GiB together, and this card has {memory / 2**30:.0f} GiB"
        raise TaskError(what, where="task.toml", next_step=step)
    return made


def _bytes(made: Sequence[Stage]) -> int:
    """The contents of all cases, and the largest case at work."""
    return sum(s.draws * s.layout.set_bytes for s in made) + max((_least_bytes(s.layout) for s in made), default=0)


def _stage(task: Task, described: Described, index: int, machine: Machine, memory: int) -> Stage:
    layout = described.layouts[index]
    case = next(c for c in task.cases if c.name == layout.case)
    limit = work(task, case, described.limits[index])
    size = layout.set_bytes + layout.out_bytes
    if _least_bytes(layout) + LEAST_DRAWS * layout.set_bytes > memory:
        step = f"make the case smaller: a call takes {size / 2**30:.1f} GiB, and contents, sets and kept results are copies of it"
        raise TaskError(f"case {case.name} does not fit on this card ({memory / 2**30:.0f} GiB)", where="task.toml", next_step=step)
    wanted = math.ceil(LAUNCH_US / max(LEAST_US, _least_us(limit, layout, machine)))
    calls = max(1, min(wanted, MOST_CALLS, int(SHARE_SETS * memory / max(size, 1))))
    return Stage(case, layout, calls, _draws(layout, memory // len(described.layouts)), limit, described.results[index])


def _least_bytes(layout: Layout) -> int:
    """What one call needs at work: its set, its results, those it is compared with, and a copy of set and results for the reference."""
    return 2 * layout.set_bytes + 3 * layout.out_bytes


def _draws(layout: Layout, memory: int) -> int:
    """`memory`: this case's part of the card's."""
    whole = any(g.tensor is not None and g.tensor.role in ("index", "meta") for g in layout.tensors)
    most = int(SHARE_BANKS * memory / max(layout.set_bytes, 1))
    return max(LEAST_DRAWS, min(INDEX_DRAWS if whole else DRAWS, most))


def _least_us(limit: tuple[float, float], layout: Layout, machine: Machine) -> float:
    size = limit[0] or float(layout.set_bytes + layout.out_bytes)
    return _us((size, limit[1]), machine) or size / 4e6  # nothing measured yet: 4 TB/s


def _us(limit: tuple[float, float], machine: Machine) -> float:
    speed = max((v for k, v in machine.ceilings if k in ("copy_GBps", "read_GBps", "write_GBps")), default=0.0)
    rate = max((v for k, v in machine.ceilings if k.endswith(("_TFLOPs", "_TOPs"))), default=0.0)
    return max(limit[0] / (speed * 1e3) if speed else 0.0, limit[1] / (rate * 1e6) if rate else 0.0)


def limit_ns(stage: Stage, machine: Machine) -> float | None:
    """Least time of one call on this card by its measured ceilings, or None when the task gives no limit."""
    return 1e3 * _us(stage.limit, machine) or None


def too_fast(stage: Stage, ns: float, machine: Machine, calls: int) -> str:
    """Why this time of a call cannot be, or ""."""
    l2 = dict(machine.ceilings).get("l2_bytes", 0.0)
    limit = limit_ns(stage, machine)
    if limit is None or ns * SLACK >= limit or calls * stage.call_bytes < L2_RESIDENT * l2:
        return ""
    return f"case {stage.name}: {ns / 1e3:.2f} us a call, the measured ceilings of this card allow no less than {limit / 1e3:.2f} us"


def timed_calls(stage: Stage, call_ns: float) -> int:
    """How many of the captured calls make a launch of about LAUNCH_US."""
    return max(1, min(stage.calls, math.ceil(1e3 * LAUNCH_US / max(call_ns, 1.0))))


def tolerances(stage: Stage, budgets: Sequence[Tolerance]) -> tuple[Tolerance, ...]:
    """What two right answers may differ by: each may be off by its budget."""
    return tuple(Tolerance(b.dtype, b.columns, 2 * b.rms, 2 * b.worst) for b in budgets) or stage.results
