"""Where to measure: the axes of a task, told apart by what a router can read from the arguments of a call.

Must not know judges or statistics.
"""

from __future__ import annotations

from keepfast.dispatch import regions
from keepfast.dispatch.records import Space
from keepfast.errors import TaskError
from keepfast.model import Case, Task
from keepfast.model.task import Dispatch
from keepfast.task import dispatch

MOST_POINTS = 512


def made(task: Task, bound: set[str]) -> Space:
    """The space of the task. `bound`: axes that some argument tells. TaskError for a visible axis that none does."""
    said = task.dispatch
    derived = tuple((axis, text) for axis, text in said.grid if isinstance(text, str))
    values = dispatch.grid(said, task.axes, task.cases)
    visible = said.visible or tuple(a for a in values if a in bound and a not in said.hidden)
    unread = next((a for a in visible if a not in bound), None)
    if unread is not None:
        step = f'Name it hidden: hidden = ["{unread}"]; a region then has to win at all its values'
        raise TaskError(f"[dispatch] no argument tells `{unread}`: a router cannot see it", where="task.toml", next_step=step)
    rest = tuple(a for a in values if a not in visible)
    space = Space(task.axes, tuple((a, values[a]) for a in visible if a in values), tuple((a, values[a]) for a in rest), derived)
    if (count := points(space)) > MOST_POINTS:
        what = f"the grid has {count} points, and at most {MOST_POINTS} are measured"
        step = f"Name values: [dispatch] grid = {{ {', '.join(f'{a} = [...]' for a in values)} }}"
        raise TaskError(what, where="task.toml", next_step=step)
    return space


def points(space: Space) -> int:
    """Points of the grid, without what is measured in between."""
    count = len(space.cells())
    for _, values in space.hidden:
        count *= len(values)
    return count


def case(point: tuple[tuple[str, int], ...]) -> Case:
    return Case("_".join(f"{axis}{value}" for axis, value in point)[:64] or "only", point)


def fallbacks(task: Task, said: Dispatch) -> tuple[str, ...]:
    """Baselines to be beaten, what is stock first: those named, else all, the operator itself and Python before others."""
    if said.fallbacks:
        return said.fallbacks
    order = sorted(task.baselines, key=lambda b: (b.name != "op", not b.path.endswith(".py"), b.name))
    return tuple(b.name for b in order)


def most(space: Space) -> int:
    return regions.most(space)
