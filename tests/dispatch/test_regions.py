"""Which cells are measured, and which boxes come of them: nothing that lost is ever in one, whatever the truth looks like."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.dispatch import regions
from keepfast.dispatch.records import Cell, Space, Span

Truth = Callable[[Cell], bool]
AXIS = st.lists(st.integers(1, 5000), min_size=1, max_size=6, unique=True).map(lambda v: tuple(sorted(v)))


def space(*grid: tuple[int, ...]) -> Space:
    names = ("m", "n", "k")[: len(grid)]
    return Space(names, tuple(zip(names, grid, strict=True)), ())


def explored(where: Space, truth: Truth) -> dict[Cell, bool]:
    won: dict[Cell, bool] = {}
    while cells := regions.next_cells(where, won):
        assert not set(cells) & set(won)
        won |= {cell: truth(cell) for cell in cells}
    return won


def routed(where: Space, won: dict[Cell, bool], cell: Cell) -> bool:
    made = [regions.spans(where, box) for box in regions.boxes(where, won)]
    return any(all(s.holds(v) for s, v in zip(spans, cell, strict=True)) for spans in made)


def test_a_boundary_is_found_by_bisection() -> None:
    where = space((1, 64, 1024, 4096))
    won = explored(where, lambda cell: cell[0] >= 300)
    (box,) = regions.boxes(where, won)
    low = box.low[0]
    below = max(c[0] for c, w in won.items() if not w)
    assert below < 300 <= low <= below * (1 + regions.STEP) or low - below <= regions.ALIGN
    assert box.high == (4096,)


def test_two_islands_stay_two() -> None:
    where = space((1, 2, 4, 8, 16, 32, 64))
    won = explored(where, lambda cell: cell[0] in (2, 3, 4) or cell[0] >= 32)
    spans = [regions.spans(where, box)[0] for box in regions.boxes(where, won)]
    assert {(s.low, s.high) for s in spans} == {(2, 4), (32, 64)}
    assert not routed(where, won, (8,))


def test_wins_far_apart_are_not_one_region_unless_the_middle_wins() -> None:
    where = space((16, 4096))
    won = explored(where, lambda cell: cell[0] in (16, 4096))
    assert len(won) > 2
    assert not any(routed(where, won, (m,)) for m in range(17, 4096))
    assert routed(where, won, (16,))
    assert routed(where, won, (4096,))


def test_what_is_less_divisible_than_all_that_was_measured_goes_to_stock() -> None:
    where = space((1024, 2048))
    won = explored(where, lambda cell: True)
    assert regions.spans(where, regions.boxes(where, won)[0]) == (Span("m", 1024, 2048, 16),)
    assert routed(where, won, (1040,))
    assert not routed(where, won, (1041,))


def test_two_axes_make_a_block_and_its_edges() -> None:
    where = space((16, 32, 64, 128), (1024, 2048, 4096))
    won = explored(where, lambda cell: cell[0] >= 40 and cell[1] <= 2048)
    boxes = regions.boxes(where, won)
    assert (boxes[0].low, boxes[0].high) == ((64, 1024), (128, 2048))
    assert routed(where, won, (96, 1536))
    assert not routed(where, won, (32, 1024))
    assert not routed(where, won, (64, 4096))


def test_nothing_beyond_what_was_measured() -> None:
    where = space((8, 16))
    won = explored(where, lambda cell: True)
    assert not routed(where, won, (4,))
    assert not routed(where, won, (32,))


def test_no_cell_between_neighbours() -> None:
    assert regions.between(7, 8) is None
    assert regions.between(16, 32) is None
    assert regions.between(16, 64) == 32
    assert regions.between(1, 100) == 10


@settings(max_examples=60, deadline=None)
@given(grid=st.lists(AXIS, min_size=1, max_size=2), seed=st.integers(0, 2**20))
def test_a_measured_loss_is_in_no_box(grid: list[tuple[int, ...]], seed: int) -> None:
    """Any truth, however torn: it is a hash of the cell."""
    where = space(*grid)
    won = explored(where, lambda cell: hash((cell, seed)) % 3 > 0)
    assert len(won) <= regions.most(where)
    made = [regions.spans(where, box) for box in regions.boxes(where, won)]
    for cell, w in won.items():
        assert w == any(all(s.holds(v) for s, v in zip(spans, cell, strict=True)) for spans in made)


@settings(max_examples=60, deadline=None)
@given(grid=AXIS, edges=st.lists(st.integers(1, 6000), min_size=1, max_size=3), ask=st.lists(st.integers(1, 6000), max_size=40))
def test_what_is_routed_lies_between_two_measured_wins(grid: tuple[int, ...], edges: list[int], ask: list[int]) -> None:
    where = space(grid)
    won = explored(where, lambda cell: sum(cell[0] >= e for e in edges) % 2 == 0)
    for value in ask:
        if not routed(where, won, (value,)):
            continue
        below = max(c[0] for c in won if c[0] <= value)
        above = min(c[0] for c in won if c[0] >= value)
        assert won[(below,)]
        assert won[(above,)]
        assert above <= regions.GAP * below
