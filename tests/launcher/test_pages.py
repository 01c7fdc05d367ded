"""Addresses: rounding, merging, and two arms on the same pages."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.gpu.driver import BLOCK, RESERVE, joined
from keepfast.gpu.plan import Segment
from keepfast.launcher import pages
from keepfast.launcher.faults import Failed
from keepfast.launcher.sizing import SPARE, Need, gib

BASE = 1 << 42
segments = st.lists(
    st.tuples(st.integers(0, 40 * BLOCK), st.integers(1, 3 * BLOCK)).map(lambda p: Segment(BASE + p[0], p[1])), min_size=0, max_size=12
)


def touched(runs: list[Segment] | tuple[Segment, ...], step: int) -> set[int]:
    return {n for s in runs for n in range(s.address // step, (s.end - 1) // step + 1)}


@given(segments, st.sampled_from([512, BLOCK, RESERVE]))
def test_rounding_keeps_what_is_touched_and_nothing_else(found: list[Segment], step: int) -> None:
    runs = pages.rounded(found, step)
    assert touched(runs, step) == touched(found, step)
    assert all(r.address % step == r.size % step == 0 and r.size > 0 for r in runs)
    assert all(a.end < b.address for a, b in itertools.pairwise(runs))  # in order, apart, else they would be one


@given(segments, st.integers(0, 40), st.integers(0, 10))
def test_pages_of_the_sets_are_cut_out(found: list[Segment], at: int, size: int) -> None:
    sets = Segment(BASE + at * BLOCK, size * BLOCK)
    runs = pages.pages(found, sets)
    assert touched(runs, BLOCK) == touched(found, BLOCK) - (touched([sets], BLOCK) if size else set())
    assert [r.address for r in runs] == sorted(r.address for r in runs)


@settings(max_examples=300)
@given(st.lists(segments, min_size=1, max_size=2))
def test_arms_lie_on_the_same_allocations_in_address_order(arms: list[list[Segment]]) -> None:
    runs = [pages.rounded(found, BLOCK) for found in arms]
    sizes = pages.pieces(runs)
    assert sum(sizes) == max(sum(r.size for r in one) for one in runs)
    for one in runs:
        parts = pages.spread(one, sizes)
        assert [p.size for p in parts] == list(sizes[: len(parts)])  # whole allocations: the driver maps no others
        assert touched(parts, BLOCK) == touched(one, BLOCK)
        assert sum(p.size for p in parts) == sum(r.size for r in one)
        assert [p.address for p in parts] == sorted(p.address for p in parts)


def test_one_hole_in_one_arm_cuts_the_other() -> None:
    a = (Segment(0, 4 * BLOCK),)
    b = (Segment(64 * BLOCK, BLOCK), Segment(70 * BLOCK, 5 * BLOCK))
    assert pages.pieces([a, b]) == (BLOCK, 3 * BLOCK, 2 * BLOCK)
    assert [p.address // BLOCK for p in pages.spread(b, pages.pieces([a, b]))] == [64, 70, 73]
    assert [p.address // BLOCK for p in pages.spread(a, pages.pieces([a, b]))] == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 5)), unique_by=lambda p: p[0], max_size=10))
def test_spans_that_touch_are_joined(spans: list[tuple[int, int]]) -> None:
    apart = [s for i, s in enumerate(sorted(spans)) if all(s[0] >= o[0] + o[1] for o in sorted(spans)[:i])]
    found = joined(apart)
    assert {n for at, size in found for n in range(at, at + size)} == {n for at, size in apart for n in range(at, at + size)}
    assert all(a[0] + a[1] < b[0] for a, b in itertools.pairwise(found))


# --------------------------------------------------------------------------------------------- how much is needed

NEED = Need("wide", sets=12 << 30, others=3 << 30, results=2 << 30, bank=0, audit=1 << 30, fixed=100 << 20)


def test_launches_are_fewer_when_kept_results_do_not_fit() -> None:
    assert NEED.launches(80 << 30, 4) == 4
    for count in (4, 3, 2, 1):
        assert NEED.launches(NEED.total(count) + SPARE, 4) == count
    assert NEED.launches(80 << 30, 1) == 1


def test_too_little_memory_is_said_with_what_takes_it() -> None:
    with pytest.raises(Failed) as failed:
        NEED.launches(NEED.total(1), 4)
    fault = failed.value.fault
    assert (fault.kind, fault.arm) == ("memory", -1)
    for words in ("case wide needs 18.3 GiB", "sets 12.0 GiB", "results kept of one launch 2.0 GiB", "own 100.0 MiB", "18.1 GiB free"):
        assert words in fault.detail
    assert "bank" not in fault.detail
    assert "smaller" in fault.detail


def test_sizes_in_words() -> None:
    assert [gib(n) for n in (0, 1 << 20, 1 << 29, 3 << 30)] == ["0.0 MiB", "1.0 MiB", "0.5 GiB", "3.0 GiB"]
