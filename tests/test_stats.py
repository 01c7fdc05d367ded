"""Quantiles against printed tables; estimates by their properties."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast import stats

# Two-sided 5 %, two-sided 10 % and two-sided 1 % columns of the usual tables, and t at 0.9875 (Bonferroni for two comparisons at 5 %).
T_TABLE = [
    (1, 0.975, 12.706), (2, 0.975, 4.303), (3, 0.975, 3.182), (4, 0.975, 2.776), (5, 0.975, 2.571), (7, 0.975, 2.365),
    (10, 0.975, 2.228), (30, 0.975, 2.042), (120, 0.975, 1.980), (1, 0.95, 6.314), (3, 0.95, 2.353), (5, 0.95, 2.015),
    (11, 0.95, 1.796), (3, 0.995, 5.841), (7, 0.995, 3.499), (3, 0.9875, 4.177), (7, 0.9875, 2.841),
]  # fmt: skip
Z_TABLE = [(0.9, 1.2816), (0.95, 1.6449), (0.975, 1.9600), (0.9875, 2.2414), (0.99, 2.3263), (0.995, 2.5758), (0.9995, 3.2905)]

ratios = st.lists(st.floats(-1, 1), min_size=1, max_size=12)
sigmas = st.floats(1e-5, 0.1)


@pytest.mark.parametrize(("df", "p", "expected"), T_TABLE)
def test_student_quantile_is_the_tables(df: int, p: float, expected: float) -> None:
    assert stats.student_quantile(p, df) == pytest.approx(expected, abs=6e-4)
    assert stats.student_quantile(1 - p, df) == pytest.approx(-expected, abs=6e-4)


@pytest.mark.parametrize(("p", "expected"), Z_TABLE)
def test_normal_quantile_is_the_tables(p: float, expected: float) -> None:
    assert stats.normal_quantile(p) == pytest.approx(expected, abs=6e-5)


def test_many_degrees_of_freedom_are_normal() -> None:
    assert stats.student_quantile(0.975, 100_000) == pytest.approx(stats.normal_quantile(0.975), abs=1e-4)


@given(st.floats(1e-6, 1 - 1e-6), st.integers(1, 60))
def test_quantiles_invert_their_distribution(p: float, df: int) -> None:
    assert stats.student_cdf(stats.student_quantile(p, df), df) == pytest.approx(p, abs=1e-9)
    assert stats.normal_cdf(stats.normal_quantile(p)) == pytest.approx(p, abs=1e-9)


@given(st.floats(0.5001, 1 - 1e-6), st.integers(1, 60))
def test_fewer_degrees_of_freedom_reach_further(p: float, df: int) -> None:
    assert stats.student_quantile(p, df) >= stats.student_quantile(p, df + 1) >= stats.normal_quantile(p)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, math.nan])
def test_no_quantile_outside_zero_and_one(p: float) -> None:
    with pytest.raises(ValueError, match="0 < p < 1"):
        stats.normal_quantile(p)
    with pytest.raises(ValueError, match="0 < p < 1"):
        stats.student_quantile(p, 3)


def test_no_degrees_of_freedom_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one degree"):
        stats.student_cdf(1.0, 0)


def test_median_and_spread_of_known_samples() -> None:
    assert stats.median([3.0, 1.0, 2.0]) == 2.0
    assert stats.median([4.0, 1.0, 2.0, 3.0]) == 2.5

    assert stats.sample_sd([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == pytest.approx(math.sqrt(32 / 7))
    assert stats.sample_sd([5.0]) == 0.0


@pytest.mark.parametrize("function", [stats.median, stats.mean])
def test_nothing_has_no_centre(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="of nothing"):
        function([])


@given(ratios, st.floats(-1, 1))
def test_the_median_moves_with_the_sample(values: list[float], shift: float) -> None:
    moved = [v + shift for v in values]
    assert stats.median(moved) == pytest.approx(stats.median(values) + shift, abs=1e-12)

    assert min(values) <= stats.median(values) <= max(values)


def test_the_calibrated_spread_is_a_floor_and_has_the_normal_quantile() -> None:
    assert stats.quantile_q(0.001, 0.006, 4, 0.0125) == stats.normal_quantile(0.9875)
    assert stats.quantile_q(0.007, 0.006, 4, 0.0125) == stats.student_quantile(0.9875, 3)
    assert stats.quantile_q(0.007, 0.006, 1, 0.0125) == stats.normal_quantile(0.9875)


def test_half_width_by_hand() -> None:
    values = [-0.01, -0.03, -0.02, -0.04]
    spread = math.sqrt(5 / 3) * 0.01
    assert stats.half_width(values, 0.001, 0.0125) == pytest.approx(4.17653 * spread / 2, rel=1e-5)
    assert stats.half_width(values, 0.05, 0.0125) == pytest.approx(2.241403 * 0.05 / 2, rel=1e-5)


@given(ratios, sigmas, st.randoms(use_true_random=False))
def test_an_estimate_holds_its_mean_and_ignores_order(values: list[float], sigma: float, chance: random.Random) -> None:
    found = stats.estimate(values, "start", sigma)
    assert found.low <= found.d <= found.high
    assert found.d - found.low == pytest.approx(found.high - found.d, abs=1e-12)
    assert stats.estimate(chance.sample(values, len(values)), "start", sigma) == found
    assert (found.rounds, found.opponent) == (len(values), "start")


@given(ratios, sigmas, st.floats(1.0, 5.0))
def test_more_calibrated_noise_never_narrows_below_the_floor(values: list[float], sigma: float, factor: float) -> None:
    floor = stats.normal_quantile(0.975) * sigma * factor / math.sqrt(len(values))
    wide = stats.estimate(values, "start", sigma * factor)
    assert wide.high - wide.d >= floor * (1 - 1e-9)


@given(ratios, sigmas, st.floats(-0.5, 0.5))
def test_a_common_shift_moves_the_interval_and_nothing_else(values: list[float], sigma: float, shift: float) -> None:
    before, after = stats.estimate(values, "start", sigma), stats.estimate([v + shift for v in values], "start", sigma)
    assert after.d == pytest.approx(before.d + shift, abs=1e-12)
    if abs(stats.sample_sd(values) - sigma) > 1e-9:  # at equality rounding may pick either quantile
        assert after.high - after.low == pytest.approx(before.high - before.low, abs=1e-9)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    chance = random.Random(5)
    samples = ([chance.gauss(-0.05, 0.01) for _ in range(6)] for _ in range(4000))
    missed = sum(not (e.low <= -0.05 <= e.high) for e in (stats.estimate(s, "start", 1e-9) for s in samples))
    assert 0.035 < missed / 4000 < 0.065
