"""Sizes as axes, and many kinds of calls as a few cases. Numbers only."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast import expr
from keepfast.task import captured_axes
from keepfast.task.captured_axes import Vector

COLUMNS: dict[str, Vector] = {
    "q.0": (1, 4, 8),
    "q.1": (32, 32, 32),
    "q.2": (128, 128, 128),
    "cache.0": (7, 100, 50),
    "lengths.0": (1, 4, 8),
    "starts.0": (2, 5, 9),
    "flat.0": (32, 128, 256),
}


def test_what_varies_together_is_one_axis_and_what_does_not_vary_is_a_number() -> None:
    solved = captured_axes.solve(COLUMNS, {}, ["q", "m"])
    assert solved.axes == (("n", (1, 4, 8)), ("k", (7, 100, 50)))
    expected = {"q.0": "n", "q.1": "32", "q.2": "128", "cache.0": "k", "lengths.0": "n", "starts.0": "n+1", "flat.0": "32*n"}
    assert solved.texts == expected


def test_half_and_product() -> None:
    columns = {"x.0": (2, 4, 6, 10), "x.1": (8, 16, 64, 128), "y.0": (4, 8, 32, 64), "z.0": (16, 64, 384, 1280)}
    assert captured_axes.solve(columns, {}, []).texts == {"x.0": "m", "x.1": "n", "y.0": "n//2", "z.0": "m*n"}


def test_one_call_tells_only_what_is_equal() -> None:
    solved = captured_axes.solve({"x.0": (16,), "x.1": (64,), "w.0": (64,), "s.0": (1,)}, {}, [])
    assert solved.axes == (("m", (16,)), ("n", (64,)))
    assert solved.texts == {"x.0": "m", "x.1": "n", "w.0": "n", "s.0": "1"}


def test_names() -> None:
    solved = captured_axes.solve({"x.0": (1, 2), "x.1": (5, 9)}, {"x.1": "size"}, ["m", "x", "size"])
    assert [axis for axis, _ in solved.axes] == ["n", "size"]
    assert captured_axes.axis_named("k", ["k_value"]) == "k_value_"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 500), min_size=4, max_size=4), min_size=1, max_size=6))
def test_every_column_has_its_sizes_back(columns: list[list[int]]) -> None:
    named = {f"x.{i}": tuple(column) for i, column in enumerate(columns)}
    solved = captured_axes.solve(named, {}, [])
    names = tuple(axis for axis, _ in solved.axes)
    for column, vector in named.items():
        for i, size in enumerate(vector):
            row = {axis: values[i] for axis, values in solved.axes}
            assert expr.parse(solved.texts[column], names).value(row) == size


def test_cases_are_few_weights_are_whole_and_the_largest_is_in() -> None:
    rows = [(m, 64) for m in range(1, 401)]
    calls = [1000 if m in (1, 8, 256) else 1 for m, _ in rows]
    chosen = captured_axes.choose(rows, calls, [m * 64 for m, _ in rows])
    assert [rows[i][0] for i in chosen.timed] == [1, 8, 256, 400]
    assert sum(chosen.weights) == pytest.approx(1)
    assert chosen.weights[0] > 0.29
    assert sum(chosen.merged) == 400
    assert all(rows[i][0] % 16 for i in chosen.checked)
    many = captured_axes.choose(rows, [1] * 400, [m for m, _ in rows])
    assert len(many.timed) + len(many.checked) <= 12
    assert rows[many.timed[-1]][0] == 400


def test_one_row_is_one_case() -> None:
    assert captured_axes.choose([()], [7], [64]) == captured_axes.Chosen((0,), (1.0,), (1,), ())
