"""Stock against stock: what is kept of it, for whom it counts, and that it never makes an interval narrower."""

from __future__ import annotations

import math
from random import Random

import pytest
from msgspec.structs import replace

from keepfast import stats
from keepfast.engine import noise
from keepfast.engine.base import AGAIN, STOCK, Lap
from keepfast.engine.noise import Floors, Spread
from keepfast.engine.proof import Bounds, prove
from keepfast.model.proof import Outcome
from tests.engine.accounts import CELLS, KEPT, STEP, account


def twice(sd: float, offset: float = 0.0, rounds: int = 8):
    """Stock in both arms."""
    rng = Random(3)
    laps = tuple(
        Lap(c.name, arm, r, STEP[c.name] * math.exp(rng.gauss(offset if arm == AGAIN else 0.0, sd / math.sqrt(2))))
        for r in range(rounds)
        for c in CELLS
        for arm in (STOCK, AGAIN)
    )
    return replace(account(), arms=(STOCK, AGAIN), laps=laps)


def test_each_cell_and_all_of_them_are_kept():
    found = noise.measured(twice(0.002, 0.004))
    assert [s.cell for s in found.spreads] == [*(c.name for c in CELLS), noise.WHOLE]
    assert all(s.rounds == 8 for s in found.spreads)
    assert found.spreads[-1].sd < max(s.sd for s in found.spreads[:-1]) < 0.005
    assert found.spreads[-1].offset == pytest.approx(0.004, abs=0.002)


def test_it_counts_in_the_same_setting_only_and_the_last_one_counts():
    asked, found = account(), noise.measured(twice(0.002))
    other = noise.measured(replace(twice(0.1), machine="another card"))
    assert noise.floors(asked, [other]).spreads == ()
    assert noise.floors(asked, [found, other]).spreads == found.spreads[:-1]
    later = noise.measured(twice(0.003))
    assert noise.floors(asked, [found, later]).spreads == later.spreads[:-1]
    for name, same in (("tokens", True), ("arm x", True), ("attention", False), ("steps", False)):
        changed = replace(asked, settings=(*asked.settings, (name, "7")))
        assert bool(noise.floors(changed, [found]).spreads) is same, name


def test_an_interval_is_never_narrower_for_it():
    values = [0.01, 0.012, 0.011, 0.009]
    own = stats.half_width(values, 0.0, 0.025)
    for spread in (None, Spread("c", 0.0, 0.0, 8), Spread("c", stats.sample_sd(values) * 1.01, 0.0, 8), Spread("c", 1e-4, 0.0, 1)):
        assert noise.reach(values, spread, 0.025) >= own
    wide = noise.reach(values, Spread("c", 0.02, 0.003, 8), 0.025)
    assert wide == pytest.approx(0.003 + stats.student_quantile(0.975, 7) * 0.02 / 2)


def test_a_gain_that_stock_feigns_against_itself_is_no_gain():
    asked = account(0.996)
    assert prove(asked, Bounds()).outcome is Outcome.PASSED
    feigned = noise.floors(asked, [noise.measured(twice(0.003, 0.004))])
    proof = prove(asked, Bounds(noise=feigned))
    assert proof.outcome is Outcome.MICRO
    assert proof.whole.high > 0
    assert not any("keepfast e2e --aa" in flag for flag in proof.flags)
    assert prove(account(0.8), Bounds(noise=feigned)).outcome is Outcome.PASSED


def test_cells_that_were_never_measured_are_named_and_then_the_whole_is_its_own():
    spreads = noise.measured(twice(0.003)).spreads[:2]
    proof = prove(account(0.8), Bounds(noise=Floors(spreads)))
    assert f"stock against stock was not measured at {CELLS[2].name}, {CELLS[3].name}: keepfast e2e --aa" in " ".join(proof.flags)
    assert proof.whole == prove(account(0.8), Bounds()).whole
    assert Floors(spreads).whole([c.name for c in CELLS]) is None
    assert Floors(spreads).whole([s.cell for s in spreads]).sd == pytest.approx(stats.mean([s.sd for s in spreads]))
    assert KEPT in proof.arm
