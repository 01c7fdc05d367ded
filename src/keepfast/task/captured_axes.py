"""Sizes of many calls as axes and cases: what is the same everywhere is a number, what varies together is one axis.

Must not know files, tensors' contents or functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from keepfast.task.signature import reserved

NAMES = ("m", "n", "k", "b", "h", "d", "s", "t", "p", "q", "r", "u", "v", "w", "x", "y")
KEYS = ("name", "weight", "use")  # of a case
TIMED, CHECKED, RARE = 9, 2, 0.01  # cases, and the share of calls below which one is only checked
Vector = tuple[int, ...]


class Solved(Struct, frozen=True):
    """`axes` with their value in each row; `texts`: each column as an expression over them."""

    axes: tuple[tuple[str, Vector], ...]
    texts: dict[str, str]


class Chosen(Struct, frozen=True):
    """Rows that become cases. `timed` with weights; `merged`: how many rows a timed one stands for."""

    timed: tuple[int, ...]
    weights: tuple[float, ...]
    merged: tuple[int, ...]
    checked: tuple[int, ...]


def solve(columns: Mapping[str, Vector], wanted: Mapping[str, str], taken: Iterable[str]) -> Solved:
    """`wanted`: names that an axis should have, by column; `taken`: names that none may have."""
    axes: dict[str, Vector] = {}
    texts: dict[str, str] = {}
    free = iter(n for n in (*NAMES, *(f"axis{i}" for i in range(64))) if n not in set(taken) and not reserved(n))
    single = len(next(iter(columns.values()), ())) == 1
    for column, vector in columns.items():
        text = _known(vector, axes, single=single)
        if not text:
            text = wanted.get(column, "") or next(free)
            axes[text] = vector
        texts[column] = text
    return Solved(tuple(axes.items()), texts)


def _known(vector: Vector, axes: Mapping[str, Vector], *, single: bool) -> str:
    """The column in terms of numbers and axes, "" when it is an axis of its own. One row tells nothing but which sizes are equal."""
    equal = next((name for name, one in axes.items() if one == vector), "")
    if equal or single:
        return equal or ("1" if vector == (1,) else "")
    if len(set(vector)) == 1:
        return str(vector[0])
    for name, one in axes.items():
        if text := _related(vector, name, one):
            return text
    if len(set(vector)) < 3:
        return ""
    pairs = ((a, b) for a in axes for b in axes if a < b)
    return next((f"{a}*{b}" for a, b in pairs if all(x * y == v for x, y, v in zip(axes[a], axes[b], vector, strict=True))), "")


def _related(vector: Vector, name: str, one: Vector) -> str:
    """`2*m`, `m//2` or `m+1`."""
    if all(v % o == 0 for v, o in zip(vector, one, strict=True)) and len({v // o for v, o in zip(vector, one, strict=True)}) == 1:
        return f"{vector[0] // one[0]}*{name}"
    if all(o % v == 0 for v, o in zip(vector, one, strict=True)) and len({o // v for v, o in zip(vector, one, strict=True)}) == 1:
        return f"{name}//{one[0] // vector[0]}"
    apart = {v - o for v, o in zip(vector, one, strict=True)}
    step = next(iter(apart))
    return f"{name}{step:+d}" if len(apart) == 1 and abs(step) <= 8 else ""


# --------------------------------------------------------------------------------------------- cases


def choose(rows: Sequence[Vector], calls: Sequence[int], sizes: Sequence[int]) -> Chosen:
    """At most TIMED + CHECKED + 1 of the rows: the commonest, the largest always, and of the rare ones some that are only checked.

    The calls of a row that is left out count for the chosen one nearest to it by the ratios of its axes. `sizes`: elements of a call.
    """
    total = max(sum(calls), 1)
    order = sorted(range(len(rows)), key=lambda i: (-calls[i], i))
    common = [i for i in order if calls[i] >= RARE * total] or order[:1]
    timed = common[:TIMED]
    largest = max(range(len(rows)), key=lambda i: sizes[i])
    if largest not in timed:
        timed.append(largest)
    checked = _odd([i for i in order if i not in timed], rows, sizes)
    weights, merged = dict.fromkeys(timed, 0), dict.fromkeys(timed, 0)
    for i in range(len(rows)):
        near = i if i in weights else min(timed, key=lambda j: _far(rows[i], rows[j]))
        weights[near] += calls[i]
        merged[near] += 1
    found = tuple(weights[i] / total for i in timed)
    return Chosen(tuple(timed), found, tuple(merged[i] for i in timed), tuple(checked))


def _odd(rest: list[int], rows: Sequence[Vector], sizes: Sequence[int]) -> list[int]:
    """Sizes that are multiples of little find forgotten masks; then the smallest."""
    ranked = sorted(rest, key=lambda i: (-sum(value % 16 != 0 for value in rows[i]), sizes[i], i))
    return ranked[:CHECKED]


def _far(one: Vector, other: Vector) -> float:
    return sum(abs(math.log(a / b)) for a, b in zip(one, other, strict=True) if a > 0 and b > 0)


def axis_named(name: str, taken: Iterable[str]) -> str:
    """A name for the axis that holds the values of the argument `name`."""
    found = f"{name}_value"
    while found in set(taken) or found in KEYS:
        found += "_"
    return found
