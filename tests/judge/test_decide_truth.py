"""The decision against a truth that is known because it is simulated, and the two numbers that it prints about itself."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from keepfast import stats
from keepfast.judge.decide import RULE, Evidence, Measure, Rule, false_keep, mde, next_step
from keepfast.model import Calibration, Phase, Reason
from tests.judge.made_rounds import calibrated, judge, one

# ------------------------------------------------------------------------------------------------ what it can and cannot see


def test_mde_is_the_formula() -> None:
    assert mde(calibrated(sigma=0.006)) == pytest.approx(0.003 + (2.241403 + 1.281552) * 0.003, rel=1e-5)


@pytest.mark.parametrize("sigma", [0.002, 0.006, 0.008, 0.02])
def test_false_keep_is_the_formula_where_layout_and_offset_are_none(sigma: float) -> None:
    z = stats.normal_quantile(1 - 0.0125) + 0.003 * 2 / sigma
    assert false_keep(calibrated(sigma=sigma)) == pytest.approx(0.05 * 2 * stats.normal_cdf(-z), rel=1e-9)


def test_false_keep_of_a_noisy_machine_is_the_published_figure() -> None:
    assert false_keep(calibrated(sigma=0.008)) == pytest.approx(1.4e-4, rel=0.02)


def test_a_harness_that_prefers_the_subject_keeps_more() -> None:
    assert false_keep(calibrated(offset=-0.001)) > false_keep(calibrated()) > false_keep(calibrated(offset=0.001))


def test_no_noise_at_all_is_no_division_by_zero() -> None:
    assert false_keep(calibrated(sigma=0.0)) == 0.0
    assert mde(calibrated(sigma=0.0)) == 0.003


# ------------------------------------------------------------------------------------------------ simulated truth

Noise = Callable[[random.Random], float]


def normal(chance: random.Random) -> float:
    return chance.gauss(0, 1)


def heavy(chance: random.Random) -> float:
    """Student's t with 3 degrees of freedom, scaled to SD 1."""
    return chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2 / 3)) / math.sqrt(3)


def spiked(chance: random.Random) -> float:
    """Three rounds in a hundred are off by five SDs, either way."""
    return chance.gauss(0, 1) + (chance.choice((-5, 5)) if chance.random() < 0.03 else 0)


def simulate(count: int, calibration: Calibration, truth: float, noise: Noise, sigma: float = 0.006) -> Counter[Reason]:
    chance, found = random.Random(20), Counter[Reason]()
    for _ in range(count):
        here = truth + chance.gauss(0, calibration.layout)
        found[judge(calibration, lambda phase: one(phase, here + sigma * noise(chance)))[0].reason] += 1  # noqa: B023
    return found


@pytest.mark.parametrize("noise", [normal, heavy, spiked])
def test_changes_of_no_effect_are_not_kept(noise: Noise) -> None:
    assert simulate(20_000, calibrated(), 0.0, noise)[Reason.FASTER] <= 20


def test_noise_twice_what_was_calibrated_does_not_make_keeps() -> None:
    assert simulate(10_000, calibrated(sigma=0.003), 0.0, normal)[Reason.FASTER] <= 10


def test_a_gain_of_five_per_cent_is_always_found() -> None:
    assert simulate(1000, calibrated(), math.log(1 / 1.05), normal)[Reason.FASTER] >= 999


def test_the_smallest_detectable_gain_is_found_as_often_as_promised() -> None:
    assert simulate(1000, calibrated(), -mde(calibrated()), normal)[Reason.FASTER] >= 900


def test_a_gain_of_a_third_of_that_is_seldom_found() -> None:
    """Shows that the simulation can tell: power is not one everywhere."""
    assert simulate(1000, calibrated(), -mde(calibrated()) / 3, normal)[Reason.FASTER] <= 100


def test_a_loss_is_never_kept_and_mostly_ends_in_the_screen() -> None:
    found = simulate(2000, calibrated(), 0.02, normal)
    assert found[Reason.FASTER] == 0
    assert found[Reason.SLOWER] >= 1900


def test_the_printed_false_keep_rate_is_not_too_small_and_not_absurd() -> None:
    calibration = calibrated(sigma=0.002, layout=0.01)
    seen = simulate(8000, calibration, 0.0, normal, sigma=0.002)[Reason.FASTER] / 8000
    assert seen <= false_keep(calibration) * 1.3
    assert seen >= false_keep(calibration) / 4


def test_the_rule_is_a_record_that_can_be_another() -> None:
    quick = Rule(test=3, test_most=3, confirm=4)
    assert next_step(calibrated(), Evidence((one(Phase.SCREEN, -0.05),)), (), quick) == Measure(Phase.TEST, 3)
    assert Rule() == RULE
