"""Which cells to measure next, and which boxes of the visible axes belong to the winner.

Pure, over `won`: measured cell -> whether the custom kernel won there. Nothing is assumed monotone. What lies between two measured
cells is taken to be like them only if both won, are neighbours on one axis, are at most a factor of two apart, and the value is
divisible by what all measured values are divisible by.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from keepfast.dispatch.records import Cell, Space, Span

STEP = 1 / 8  # a boundary is known when its two sides are so close
GAP = 2  # between two wins that are taken to be one region
ALIGN = 16  # elements: kernels read vectors, and a width that is no multiple of them is another kernel
EXTRA = 8  # cells that may be added on each line of the grid


class Box(Struct, frozen=True):
    low: Cell
    high: Cell
    members: tuple[Cell, ...]  # measured cells in it


def most(space: Space) -> int:
    """How many cells are measured at most: the grid, and for each of its lines a bounded number of looks in between."""
    sizes = [len(values) for _, values in space.visible]
    lines = sum(math.prod(sizes) // size for size in sizes if size > 1)
    return math.prod(sizes) + EXTRA * lines


def next_cells(space: Space, won: Mapping[Cell, bool]) -> tuple[Cell, ...]:
    """The grid first; then the middles of all gaps that matter, until none is left or the most is reached."""
    missing = tuple(cell for cell in space.cells() if cell not in won)
    if missing:
        return missing
    found = dict.fromkeys(middle for low, high, axis in _neighbours(won) if (middle := _look(won, low, high, axis)) is not None)
    return tuple(found)[: max(0, most(space) - len(won))]


def _look(won: Mapping[Cell, bool], low: Cell, high: Cell, axis: int) -> Cell | None:
    """The cell to measure between two neighbours, or None when they say enough."""
    a, b = low[axis], high[axis]
    differ = won[low] != won[high] and b > a * (1 + STEP)
    far = won[low] and won[high] and b > GAP * a
    middle = between(a, b) if differ or far else None
    return None if middle is None else (*low[:axis], middle, *low[axis + 1 :])


def between(a: int, b: int) -> int | None:
    """A value near the geometric middle, divisible by what both ends are divisible by; None when there is none."""
    step = math.gcd(a, b, ALIGN)
    middle = math.isqrt(a * b) // step * step
    middle = middle if middle > a else a + step
    return middle if a < middle < b else None


def _lines(cells: Sequence[Cell]) -> Iterator[tuple[int, list[Cell]]]:
    """Cells that differ in one axis only, in order, with that axis."""
    for axis in range(len(cells[0]) if cells else 0):
        lines: dict[Cell, list[Cell]] = {}
        for cell in sorted(cells):
            lines.setdefault(cell[:axis] + cell[axis + 1 :], []).append(cell)
        yield from ((axis, line) for line in lines.values())


def _neighbours(won: Mapping[Cell, bool]) -> Iterator[tuple[Cell, Cell, int]]:
    for axis, line in _lines(tuple(won)):
        yield from ((low, high, axis) for low, high in itertools.pairwise(line))


# --------------------------------------------------------------------------------------------- boxes


def boxes(space: Space, won: Mapping[Cell, bool]) -> tuple[Box, ...]:
    """Boxes that hold measured wins and nothing else, the largest first; none lies inside another."""
    links = {(low, high) for low, high, axis in _neighbours(won) if won[low] and won[high] and high[axis] <= GAP * low[axis]}
    made = [*_runs(won, links), *_blocks(space, won, links)]
    made.sort(key=lambda box: (-len(box.members), box.low))
    kept: list[Box] = []
    for box in made:
        if not any(_inside(box.low, k) and _inside(box.high, k) for k in kept):
            kept.append(box)
    return tuple(kept)


def _runs(won: Mapping[Cell, bool], links: set[tuple[Cell, Cell]]) -> Iterator[Box]:
    """On every line, the stretches of linked wins."""
    for _, line in _lines(tuple(won)):
        run: list[Cell] = []
        for cell in line:
            if run and (run[-1], cell) not in links:
                yield _box(run, run)
                run = []
            if won[cell]:
                run.append(cell)
        if run:
            yield _box(run, run)


def _blocks(space: Space, won: Mapping[Cell, bool], links: set[tuple[Cell, Cell]]) -> Iterator[Box]:
    """From every cell of the grid that won, the block of the grid that grows from it along all axes."""
    grid = [values for _, values in space.visible]
    chains = _chains(links) if len(grid) > 1 else set()
    lost = [cell for cell, w in won.items() if not w]
    for start in itertools.product(*(range(len(values)) for values in grid)) if len(grid) > 1 else ():
        low, high = _at(grid, start), list(start)
        for axis, values in enumerate(grid):
            while high[axis] + 1 < len(values) and _grows(grid, (start, high, axis), chains):
                wider = [*high[:axis], high[axis] + 1, *high[axis + 1 :]]
                if any(_inside(cell, Box(low, _at(grid, wider), ())) for cell in lost):
                    break  # between the lines of the grid something was measured too
                high = wider
        if won[low]:
            top = _at(grid, high)
            yield _box([low, top], [c for c, w in won.items() if w and _inside(c, Box(low, top, ()))])


def _at(grid: Sequence[tuple[int, ...]], index: Sequence[int]) -> Cell:
    return tuple(values[i] for values, i in zip(grid, index, strict=True))


def _chains(links: set[tuple[Cell, Cell]]) -> set[tuple[Cell, Cell]]:
    """Pairs of cells on one line with nothing but links between them."""
    after: dict[tuple[Cell, int], Cell] = {}
    for low, high in links:
        after[low, next(i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a != b)] = high
    found = set()
    for low, axis in after:
        at: Cell | None = low
        while at is not None and (at := after.get((at, axis))) is not None:
            found.add((low, at))
    return found


def _grows(grid: list[tuple[int, ...]], block: tuple[Cell, list[int], int], chains: set[tuple[Cell, Cell]]) -> bool:
    """Whether the next slab along `axis` is all wins, linked to the block and in itself."""
    start, high, axis = block
    ranges = [range(a, b + 1) for a, b in zip(start, high, strict=True)]
    ranges[axis] = range(high[axis] + 1, high[axis] + 2)

    for index in itertools.product(*ranges):
        for back in range(len(grid)):
            before = (*index[:back], index[back] - 1, *index[back + 1 :])
            if (back == axis or index[back] > start[back]) and (_at(grid, before), _at(grid, index)) not in chains:
                return False
    return True


def _box(corners: Sequence[Cell], members: Sequence[Cell]) -> Box:
    return Box(tuple(map(min, zip(*corners, strict=True))), tuple(map(max, zip(*corners, strict=True))), tuple(members))


def _inside(cell: Cell, box: Box) -> bool:
    return all(a <= x <= b for a, x, b in zip(box.low, cell, box.high, strict=True))


def spans(space: Space, box: Box) -> tuple[Span, ...]:
    """The box as a router checks it."""
    found = []
    for i, name in enumerate(space.names):
        multiple = math.gcd(ALIGN, *(cell[i] for cell in box.members)) if box.low[i] < box.high[i] else 1
        found.append(Span(name, box.low[i], box.high[i], multiple))
    return tuple(found)
