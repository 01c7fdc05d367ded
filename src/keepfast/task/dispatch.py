"""`[dispatch]` of task.toml: what a router can see of a call, what it cannot, and where the champion meets its fallbacks.

Owns the keys and what they must satisfy. Must not know how anything is measured, nor how a region is decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from keepfast import expr
from keepfast.errors import TaskError, nearest
from keepfast.model.task import Baseline, Case, Dispatch

if TYPE_CHECKING:
    from keepfast.task.file import Source

ROUNDS = (3, 64)  # fewer show no spread, more is no certificate but a career
_MAX_AXIS = 2**40


class DispatchKeys(Struct, frozen=True):
    visible: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    grid: dict[str, tuple[int, ...] | str] = field(default_factory=dict)
    fallbacks: tuple[str, ...] = ()
    rounds: int = 6


def read(source: Source, cases: tuple[Case, ...], baselines: tuple[Baseline, ...]) -> Dispatch:
    """The table, checked; what it leaves out is said by the cases. TaskError says which key is wrong and what to type."""
    keys = source.keys.dispatch
    _axes(source, keys)
    _names(source, "fallbacks", keys.fallbacks, tuple(b.name for b in baselines), "baseline")
    if not ROUNDS[0] <= keys.rounds <= ROUNDS[1]:
        raise _error(source, "rounds", f"`rounds` must be from {ROUNDS[0]} to {ROUNDS[1]}")
    timed = [c for c in cases if c.timed]
    for axis, values in keys.grid.items():
        _values(source, axis, values, tuple(c.axis(axis) for c in timed))
    return Dispatch(keys.visible, keys.hidden, tuple(keys.grid.items()), keys.fallbacks, keys.rounds)


def grid(dispatch: Dispatch, axes: Iterable[str], cases: tuple[Case, ...]) -> dict[str, tuple[int, ...]]:
    """Values of every axis that is not an expression: those named, else those of the timed cases and the powers of two between them."""
    said, timed = dict(dispatch.grid), [c for c in cases if c.timed]
    found: dict[str, tuple[int, ...]] = {}
    for axis in axes:
        values = said.get(axis)
        if not isinstance(values, str):
            found[axis] = tuple(sorted(set(values))) if values is not None else _between({c.axis(axis) for c in timed})
    return found


def _between(values: set[int]) -> tuple[int, ...]:
    powers = (1 << k for k in range(max(values).bit_length()))
    return tuple(sorted(values | {p for p in powers if min(values) < p < max(values)}))


def _axes(source: Source, keys: DispatchKeys) -> None:
    axes = source.keys.axes
    for key in ("visible", "hidden", "grid"):
        _names(source, key, tuple(getattr(keys, key)), axes, "axis")
    both = set(keys.visible) & set(keys.hidden)
    if both:
        raise _error(source, "hidden", f"`{min(both)}` is named both visible and hidden")
    loose = next((axis for axis in keys.grid if keys.visible and axis not in (*keys.visible, *keys.hidden)), None)
    if loose is not None and not isinstance(keys.grid[loose], str):
        raise _error(source, "grid", f"`{loose}` is neither visible nor hidden", f'Add it to one of them, as in hidden = ["{loose}"]')


def _names(source: Source, key: str, names: tuple[str, ...], known: tuple[str, ...], kind: str) -> None:
    for name in names:
        if name not in known:
            step = f"There is: {', '.join(known)}" if known else f"This task has no {kind}"
            raise _error(source, key, f"no {kind} is called `{name}`.{nearest(name, known)}", step)
    if len(set(names)) < len(names):
        raise _error(source, key, f"`{key}` names one {kind} twice")


def _values(source: Source, axis: str, values: tuple[int, ...] | str, timed: tuple[int, ...]) -> None:
    if isinstance(values, str):
        return _expression(source, axis, values)
    if not values or not all(1 <= v <= _MAX_AXIS for v in values):
        raise _error(source, "grid", f"`{axis}`: the grid needs whole numbers from 1 to 2^40")
    if max(timed) not in values:
        what = f"`{axis}`: the grid leaves out {max(timed)}, the task's longest case: what is not measured there is not certified there"
        raise _error(source, "grid", what, f"Add {max(timed)} to {axis} = [...]")
    return None


def _expression(source: Source, axis: str, text: str) -> None:
    others = tuple(a for a in source.keys.axes if a != axis and not isinstance(source.keys.dispatch.grid.get(a), str))
    try:
        expr.parse(text, others)
    except expr.ExprError as problem:
        raise _error(source, "grid", f"`{axis}`: {problem.what}", problem.next_step) from None


def _error(source: Source, key: str, what: str, step: str = "") -> TaskError:
    return source.error(("dispatch", key), f"[dispatch] {what}", step)
