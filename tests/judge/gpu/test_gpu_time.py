"""The GPU judge at the clock: from the screen to the last round, what a gain is held against, and what the machine may do to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.gpu.messages import Solo, Time
from keepfast.judge.watch import EVERY
from keepfast.model import CaseStanding, Kind, Limit, Phase, Reason, Verdict
from tests.judge.made_rounds import calibrated

from .stand import MACHINE, QUIET, START, Stand, candidate, climbed, gpu_task, rungs

Stands = Callable[..., Stand]
ALL = ("guard", "build", "plan", "correct", "rules", "time")
TESTED = [Phase.SCREEN] + [Phase.TEST] * 4
FAST = {"code": "fast", "ns": 5000.0}


def phases(verdict: Verdict) -> list[Phase]:
    return [r.phase for r in verdict.rounds]


# ---- how it ends


def test_a_gain_climbs_all_rungs(stand: Stand) -> None:
    found = stand.begun().evaluate(**FAST)
    assert (found.kind, found.reason, found.cheat) == (Kind.KEEP, Reason.FASTER, False)
    assert rungs(found) == climbed(*ALL)
    assert phases(found) == TESTED + [Phase.CONFIRM] * 6
    assert found.gain is not None
    assert (found.gain.speedup, found.gain.opponent, found.gain.rounds) == (pytest.approx(2.0), "experiment 1", 6)
    assert None not in (found.test, found.screen, found.mde, found.false_keep)
    assert [(c.case, c.estimate.rounds) for c in found.cases] == [("main", 6), ("odd", 1)]
    assert found.code == stand.judge.arms.made[candidate(**FAST).tree].code
    assert stand.pool.holds == 1


def test_confirm_is_on_new_contents_and_other_captures_and_both_arms_are_timed_alone_then(stand: Stand) -> None:
    stand.begun().evaluate(**FAST)
    first, again = (("fast", 0), ("start", 0)), (("fast", 1), ("start", 1))
    confirm = [("main", again), ("odd", again), *[("main", again)] * 5]
    assert stand.launchers.timed() == [("main", first)] * 5 + confirm
    assert stand.launchers.opened[-2:] == [("main", (("fast", 1),)), ("main", (("start", 1),))]
    assert stand.oracle.filled == [("main", 4, "gpu"), ("odd", 4, "gpu")] * 2
    assert len(stand.pool.subjects) == 3  # the start's first capture is from the beginning
    assert stand.card.fits == stand.pool.settled == 2


def test_a_launch_of_the_slower_arm_lasts_a_millisecond(stand: Stand) -> None:
    for ns, calls in ((5000.0, 100), (20_000.0, 50)):
        stand.begun().evaluate(code="other", ns=ns)
        assert next(order.calls for order in stand.launchers.orders if isinstance(order, Time)) == calls


def test_a_kernel_called_the_champion_has_no_number(stand: Stand) -> None:
    found = stand.begun().evaluate(replace(START, n=0), **FAST)
    assert found.gain is not None
    assert found.gain.opponent == "the champion"


@pytest.mark.parametrize(("acts", "reason", "count"), [({"ns": 10_000.0}, Reason.NO_GAIN, 5), ({"ns": 11_000.0}, Reason.SLOWER, 1)])
def test_no_gain_and_a_loss_are_reverted(stand: Stand, acts: dict[str, Any], reason: Reason, count: int) -> None:
    found = stand.begun().evaluate(code="other", **acts)
    assert (found.kind, found.reason, len(found.rounds)) == (Kind.REVERT, reason, count)
    assert rungs(found) == climbed(*ALL, last=False)
    assert not any(isinstance(order, Solo) for order in stand.launchers.orders)


def test_a_case_that_got_slower_is_a_loss(stand: Stand) -> None:
    found = stand.begun().evaluate(by_case={"odd": 4.0}, **FAST)
    assert found.reason is Reason.CASE_LOSS, found.detail
    assert [p for p in phases(found) if p is Phase.CASES] == [Phase.CASES] * 6


def test_undecided_cases_are_measured_on_the_contents_and_captures_of_confirm(stand: Stand) -> None:
    """What was drawn before is closed by then."""
    found = stand.begun(calibrated(sigma=0.001, cases={"odd": 0.2})).evaluate(by_case={"odd": 2.0}, **FAST)
    assert phases(found) == TESTED + [Phase.CONFIRM] * 6 + [Phase.CASES] * 6
    assert found.kept, found.detail
    assert stand.launchers.timed()[-6:] == [("odd", (("fast", 1), ("start", 1)))] * 6
    assert {c.case: c.estimate.rounds for c in found.cases} == {"main": 6, "odd": 7}


def test_what_was_lost_before_counts(stand: Stand) -> None:
    standing = (CaseStanding("odd", 1.0, 0.0, 0.0),)
    assert stand.begun().evaluate(standing=standing, **FAST).reason is Reason.CASE_LOSS


# ---- failures while timed


def test_a_failure_while_timed_keeps_what_was_measured(stand: Stand) -> None:
    stand.begun()
    stand.launchers.disturbed = [{}] * 5 + [{"unwritten": 1}]
    found = stand.evaluate(**FAST)
    assert (found.kind, found.reason, found.cheat) == (Kind.REJECT, Reason.WRONG, True)
    assert found.detail == "case main, while timed: part of the results was never written"
    assert phases(found) == TESTED
    assert found.gain is None
    assert rungs(found) == climbed(*ALL, last=False)


def test_two_captures_that_launch_something_else(stand: Stand) -> None:
    found = stand.begun().evaluate(moving=True, **FAST)
    assert (found.kind, found.reason) == (Kind.REJECT, Reason.UNSTABLE_PLAN)
    assert found.detail == "case main: two captures launch different kernels, grids, sizes or scalars"
    assert phases(found) == TESTED


def test_a_second_capture_that_fails(stand: Stand) -> None:
    found = stand.begun().evaluate(crashes=("capture 1",), **FAST)
    assert (found.reason, found.detail, phases(found)) == (Reason.CRASH, "the host code raised", TESTED)


# ---- suspicions


def limited(stands: Stands, copy: float, l2: float = 0.0) -> Stand:
    """8 bytes an element, 256 KiB a call."""
    ceilings = (("copy_GBps", copy), ("l2_bytes", l2))
    task = gpu_task(stands().judge.bench.builds, limit=Limit(bytes="8*m*n"))
    return stands(task, replace(MACHINE, ceilings=ceilings)).begun()


def test_too_fast_to_be_true(stands: Stands) -> None:
    found = limited(stands, copy=50.0).evaluate(**FAST)  # 5.24 us at 50 GB/s
    assert (found.kind, found.reason, len(found.rounds)) == (Kind.SUSPECT, Reason.TOO_FAST, 1)
    assert found.detail == "case main: 5.00 us a call, the measured ceilings of this card allow no less than 5.24 us"
    assert rungs(found) == climbed(*ALL, last=False)


def test_what_stays_in_the_l2_may_be_faster_than_memory(stands: Stands) -> None:
    found = limited(stands, copy=50.0, l2=1e6).evaluate(**FAST)
    assert found.kept, found.detail
    assert found.cases[0].limit_ns == pytest.approx(8 * 32 * 1024 / 50.0)


def test_a_case_that_is_not_timed_is_not_held_to_the_limit(stands: Stands) -> None:
    found = limited(stands, copy=50.0).evaluate(code="fast", ns=9000.0, by_case={"odd": 1e-6})
    assert found.kept, found.detail


def test_a_gain_that_is_gone_when_alone_is_suspect(stand: Stand) -> None:
    found = stand.begun().evaluate(alone=1.5, **FAST)
    assert (found.kind, found.reason) == (Kind.SUSPECT, Reason.INTERFERENCE)
    assert "case main: alone in its launcher the subject is +40.5 %" in found.detail
    assert phases(found) == TESTED + [Phase.CONFIRM] * 6
    assert found.gain is None


# ---- the machine


@pytest.mark.parametrize("after", [0, 5])
def test_a_disturbed_machine_is_void(stand: Stand, after: int) -> None:
    stand.begun()
    stand.launchers.disturbed = [{}] * after + [{"host_ratio": 2.0}] * 9
    found = stand.evaluate(**FAST)
    assert (found.kind, found.reason) == (Kind.VOID, Reason.MACHINE)
    assert "2 rounds in a row were disturbed" in found.detail
    assert rungs(found) == climbed(*ALL, last=False)


def test_a_card_that_is_not_fit_is_void(stand: Stand) -> None:
    stand.begun()
    stand.card.trouble = "train.py uses the card"
    assert (stand.evaluate(**FAST).reason, stand.evaluate(**FAST).detail) == (Reason.MACHINE, "train.py uses the card")
    stand.card.trouble = ""
    stand.card.said = ["too hot"] * 9
    assert "disturbed: too hot" in stand.evaluate(**FAST).detail
    stand.card.said = []
    assert stand.evaluate(**FAST).kept


def test_a_champion_that_fails_to_be_captured_again_is_void(stand: Stand) -> None:
    start = candidate(1, code="start", crashes=("capture 1",))
    assert stand.begin(start).verdict.kept
    found = stand.evaluate(start, **FAST)
    assert (found.kind, found.reason) == (Kind.VOID, Reason.MACHINE)
    assert "which passed before, cannot be captured any more" in found.detail


def test_an_opponent_that_is_wrong_is_void(stand: Stand) -> None:
    start = candidate(1, code="start", said={"opponent": {"wrong": "out[3] is 0"}})
    assert stand.begin(start).verdict.kept
    found = stand.evaluate(start, timed={"odd": [[1, 0]]}, **FAST)
    assert (found.reason, found.detail) == (Reason.MACHINE, "the opponent is wrong on timed contents: case main: out[3] is 0")


def test_a_champion_after_a_resume_is_built_and_checked_first(stand: Stand) -> None:
    stand.begun()
    champion = candidate(5, code="champion", ns=8000.0)
    found = stand.evaluate(champion, **FAST)
    assert found.kept, found.detail
    assert found.gain is not None
    assert (found.gain.opponent, found.gain.speedup) == ("experiment 5", pytest.approx(1.6))
    assert rungs(found) == climbed(*ALL)
    assert stand.launchers.opened[0] == ("main", (("champion", 0),))
    count = len([arms for _, arms in stand.launchers.opened if arms == (("champion", 0),)])
    stand.evaluate(champion, code="other", ns=8000.0)
    assert len([arms for _, arms in stand.launchers.opened if arms == (("champion", 0),)]) == count


def test_a_champion_that_was_forgotten_is_captured_again(stand: Stand) -> None:
    champion = candidate(5, code="champion", ns=8000.0, crashes=("capture 2",))
    assert stand.begun().evaluate(champion, code="a", ns=9000.0).reason is Reason.SLOWER
    del stand.judge.arms.made[champion.tree]
    assert stand.evaluate(champion, code="b", ns=9000.0).reason is Reason.SLOWER
    del stand.judge.arms.made[champion.tree]
    with pytest.raises(MachineError, match="a kernel that was kept cannot be captured any more: the host code raised"):
        stand.evaluate(champion, code="c", ns=9000.0)


def test_a_champion_that_fails_now_is_the_machines_matter(stand: Stand) -> None:
    stand.begun()
    with pytest.raises(MachineError, match="the champion, kept before, now fails: case main: out"):
        stand.evaluate(candidate(5, said={"mixed": {"wrong": "out[3] is 0"}}), **FAST)


# ---- a later look


def test_every_so_often_the_noise_is_looked_at_again(stand: Stand) -> None:
    stand.begun()
    stand.judge.watch.evaluations = EVERY - 1
    noise = iter((0.05, -0.05) * 100)
    stand.launchers.noise = lambda subject, opponent: next(noise) if subject.acts.code == opponent.acts.code else 0.0
    stand.evaluate(code="a", ns=9999.0)
    assert stand.judge.calibration is not None
    assert stand.judge.calibration.sigma > 0.04
    assert any("noisier" in e.text for e in stand.told)
    assert [arms for _, arms in stand.launchers.timed()][:4] == [(("start", 0), ("start", 1))] * 4
    stand.judge.watch.evaluations = EVERY - 1
    stand.launchers.noise = lambda subject, opponent: 0.0
    assert stand.evaluate(**FAST).kept
    assert stand.judge.calibration == QUIET  # calm again: back to what was measured first


def test_a_drifting_champion_is_looked_at_again(stand: Stand) -> None:
    stand.begun()
    stand.evaluate(code="a", ns=9999.0)
    assert not stand.judge.watch.drifted
    stand.launchers.disturbed = [{"opponent_ms": 1.1, "sentinel_ms": (0.7, 0.7, 0.7)}] * 5
    stand.evaluate(code="b", ns=9999.0)
    assert stand.judge.watch.drifted


def test_a_champion_that_is_found_wrong_at_a_later_look_is_void(stand: Stand) -> None:
    stand.begun()
    stand.judge.watch.evaluations = EVERY - 1
    stand.oracle.wrong = "start"
    found = stand.evaluate(**FAST)
    assert (found.kind, found.reason) == (Kind.VOID, Reason.MACHINE)
    assert found.detail == "the champion, kept before, now fails: case main: out[3] is 0"
