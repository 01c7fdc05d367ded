"""Where a run stands, from records made by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from keepfast import model
from keepfast.errors import UsageError
from keepfast.progress import Progress, Spent, gain_of, left, raised, spent_out
from keepfast.testing import direct, keep, revert, started
from tests.loop import kit


def experiment(n: int, verdict: model.Verdict) -> model.Experiment:
    return model.Experiment(n, "deck", "", "", None, "", "", 0, verdict, 0.0, 0.0)


def progress(*speedups: float, goal: model.Goal = model.Goal(), **more: object) -> Progress:  # noqa: B008  frozen
    keeps = (experiment(1, started()), *(experiment(n, keep(s)) for n, s in enumerate(speedups, 2)))
    return Progress(kit.task(Path("/t"), goal=goal), keeps, **more)  # type: ignore[arg-type]


def baseline(name: str, d: float, half: float = 0.01) -> model.BaselineResult:
    return model.BaselineResult(name, True, "", model.Estimate(d, d - half, d + half, 0.006, 3, "start"))


@given(st.lists(st.floats(1.01, 3.0), max_size=6))
def test_total_is_the_sum_of_gains(speedups: list[float]) -> None:
    assert progress(*speedups).total() == pytest.approx(-sum(map(math.log, speedups)))


@given(st.lists(st.floats(1.01, 3.0), min_size=1, max_size=6), st.integers(2, 7), st.floats(-2.0, 0.0))
def test_a_direct_measurement_replaces_the_gains_before_it(speedups: list[float], n: int, d: float) -> None:
    n = min(n, len(speedups) + 1)
    here = progress(*speedups, directs=(direct(n, d),))
    assert here.total() == pytest.approx(d - sum(map(math.log, speedups[n - 1 :])))
    assert here.keeps_since_direct() == len(speedups) + 1 - n
    assert here.standing()[0].total == pytest.approx(here.total())


def test_total_over_a_baseline() -> None:
    here = progress(2.0, baselines=(baseline("numpy", -0.5),))
    assert here.total("baseline numpy") == pytest.approx(0.5 - math.log(2.0))
    measured = replace(here, directs=(direct(2, -0.3, against="baseline numpy"),))
    assert measured.total("baseline numpy") == pytest.approx(-0.3)


def test_opponents() -> None:
    three = (baseline("slow", 0.3), baseline("fast", -0.3), baseline("close", -0.29), model.BaselineResult("broken", False, "wrong", None))
    assert progress(goal=model.Goal(over="start"), baselines=three).opponents() == ("start", "baseline fast")
    assert progress(goal=model.Goal(over="baseline"), baselines=three).opponents() == ("start", "baseline fast", "baseline close")
    assert progress(goal=model.Goal(over="baseline"), baselines=three).rivals() == ("baseline fast", "baseline close")
    assert progress().opponents() == ("start",)


def test_due_after_five_keeps_or_when_half_done() -> None:
    assert not progress(1.1, 1.1, 1.1, 1.1).due()
    five = progress(1.1, 1.1, 1.1, 1.1, 1.1, baselines=(baseline("numpy", 0.1),))
    assert five.due()
    assert five.missing() == ("start", "baseline numpy")
    half = replace(five, directs=(direct(6, -0.5),))
    assert half.due()  # killed between the two
    assert half.missing() == ("baseline numpy",)
    assert not replace(half, directs=(*half.directs, direct(6, -0.4, against="baseline numpy"))).due()


def test_a_start_that_meets_the_goal_over_a_slow_baseline_already() -> None:
    here = progress(goal=model.Goal(speedup=1.2, over="baseline"), baselines=(baseline("slow", 0.5),))
    assert here.due()
    assert here.missing() == ("baseline slow",)
    assert (replace(here, directs=(direct(1, -0.5, against="baseline slow"),)).met() or "").startswith("1.65x over baseline slow")


def test_the_bound_decides_not_the_estimate() -> None:
    goal = model.Goal(speedup=2.0, over="start")
    d = -math.log(2.0)
    assert progress(2.0, goal=goal, directs=(direct(2, d - 0.001),)).met() is None
    assert progress(2.0, goal=goal, directs=(direct(2, d - 0.02),)).met() is not None
    assert progress(2.0, 1.1, goal=goal, directs=(direct(2, d - 0.02),)).met() is None  # of a champion before this one


def test_a_limit_that_is_not_known_for_every_case_is_no_goal() -> None:
    here = progress(2.0, goal=model.Goal(limit=0.9), directs=(direct(2, -0.7),))
    assert here.met() is None
    assert not here.due()


def test_the_best_of_a_case_is_one_that_was_measured() -> None:
    here = progress(1.5, 1.01, directs=(direct(2, -0.30),))
    (standing,) = here.standing()
    assert standing.best == standing.total == pytest.approx(-0.30 - math.log(1.01))  # not the -0.405 that the gain said
    assert replace(here, directs=(direct(2, -0.30), direct(3, -0.25))).standing()[0].best == pytest.approx(-0.30)


def test_a_cleared_keep_counts_with_what_was_seen_of_it() -> None:
    assert gain_of(replace(keep(1.2), gain=None)) == pytest.approx(-math.log(1.2))
    assert gain_of(replace(revert(1.3), gain=None, test=None)) == pytest.approx(-math.log(1.3))
    assert gain_of(started()) == 0.0


# --------------------------------------------------------------------------------------------- budgets


@pytest.mark.parametrize(
    ("budget", "spent", "why"),
    [
        (model.Budget(), Spent(199, 99.0, 99.0, 99), None),
        (model.Budget(), Spent(200, 0.0, 0.0, 0), "200 of 200 experiments"),
        (model.Budget(None, hours=8.0), Spent(9999, 8.001, 0.0, 0), "8.00 of 8.0 hours"),
        (model.Budget(None, dollars=20.0), Spent(0, 0.0, 20.0, 0), "20.00 of 20.0 dollars"),
        (model.Budget(None, dry=40), Spent(0, 0.0, 0.0, 40), "40 experiments in a row without a keep"),
    ],
)
def test_spent_out(budget: model.Budget, spent: Spent, why: str | None) -> None:
    assert spent_out(budget, spent) == why


def test_what_is_left_is_for_reading() -> None:
    assert left(model.Budget(40, 8.0, 20.0), Spent(7, 0.8, 1.5, 0)) == "33 of 40 experiments, 7.2 of 8 hours, 18.50 of 20 dollars"
    assert left(model.Budget(None), Spent(7, 0.8, 1.5, 0)) == "no budget was set"


def test_raised() -> None:
    assert raised(model.Budget(), "experiments=300 hours=10.5 dry=5 dollars=3") == model.Budget(300, 10.5, 3.0, 5)
    assert raised(model.Budget(), "") == model.Budget()


@pytest.mark.parametrize(
    ("argument", "match"),
    [
        ("experimnts=3", "Did you mean `experiments`"),
        ("experiments=many", "must be a number, not `many`"),
        ("experiments", "must be a number"),
        ("hours=0", "must be above 0"),
        ("hours=nan", "must be above 0"),
        ("experiments=-3", "must be above 0"),
    ],
)
def test_a_bad_raise_says_why(argument: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        raised(model.Budget(), argument)
