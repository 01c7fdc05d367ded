"""The stand-ins that ship: they answer from their record alone, so a resumed run hears the same."""

from __future__ import annotations

import math

import pytest

from keepfast import model
from keepfast.loop import Clock, Judge
from keepfast.propose.base import Brief, Proposer
from keepfast.testing import FakeClock, RecordedJudge, ScriptedProposer, calibration, keep, reject, revert, void

START = model.Candidate((), "start", "c0", 1)


def candidate(n: int) -> model.Candidate:
    return model.Candidate((), f"tree{n}", "", n)


def experiment(n: int, source: str, verdict: model.Verdict) -> model.Experiment:
    return model.Experiment(n, "scripted", "", source, None, "", "", 1, verdict, 0.0, 0.0)


def test_they_fit_the_seams() -> None:
    judge: Judge = RecordedJudge([])
    clock: Clock = FakeClock()
    proposer: Proposer = ScriptedProposer(())
    assert (judge, clock.time(), proposer.name) == (judge, 1_700_000_000.0, "scripted")


def test_a_list_is_by_number_not_by_order() -> None:
    verdicts = [keep(1.2), revert(), keep(1.1)]
    judge = RecordedJudge(verdicts, baselines={"numpy": -0.1, "broken": None})
    assert judge.evaluate(candidate(4), START, ()) is verdicts[2]
    assert judge.evaluate(candidate(2), START, ()) is verdicts[0]
    assert judge.compare(candidate(4), "start", 6, False).estimate.d == pytest.approx(-math.log(1.2 * 1.1))
    assert judge.compare(candidate(2), "baseline numpy", 6, True).estimate.d == pytest.approx(-math.log(1.2) + 0.1)
    begun = judge.begin(START, None)
    assert begun.verdict.reason is model.Reason.START
    assert [(b.name, b.ok) for b in begun.baselines] == [("numpy", True), ("broken", False)]
    assert judge.begin(START, calibration("mine")).calibration == calibration("mine")
    assert [a.verb for a in judge.asked] == ["evaluate", "evaluate", "compare", "compare", "begin", "begin"]


def test_a_function_needs_the_truth_for_direct_measurements() -> None:
    with pytest.raises(ValueError, match="need `logs`"):
        RecordedJudge(lambda c, a: revert())


def test_records_look_like_those_of_the_judge() -> None:
    kept = keep(1.25)
    assert [r.phase.value for r in kept.rounds] == ["screen", *["test"] * 4, *["confirm"] * 6]
    assert kept.gain is not None
    assert kept.gain.low < kept.gain.d < kept.gain.high
    assert kept.gain.speedup == pytest.approx(1.25)
    assert len(revert().rounds) == 1
    assert len(revert(reason=model.Reason.AMBIGUOUS).rounds) == 5
    assert reject(cheat=True).cheat


def test_a_script_goes_on_from_the_history() -> None:
    script = tuple(model.Proposal(f"p{i}", "x", model.Files(())) for i in range(2))
    proposer = ScriptedProposer(script, "mine")
    task = None
    history: tuple[model.Experiment, ...] = ()
    for source, verdict, then in (
        ("", revert(), "script/0"),
        ("script/0", void(), "script/0"),
        ("script/0", revert(), "script/1"),
        ("script/1", void(), "script/1"),
        ("script/1", void(), "script/1"),
        ("script/1", void(), None),
    ):
        history = (*history, experiment(len(history) + 1, source, verdict))
        found = proposer.propose(Brief(task, START, history))  # type: ignore[arg-type]
        assert (found.source if found else None) == then
        assert found is None or found.proposer == "mine"


def test_the_clock_is_moved_by_hand() -> None:
    clock = FakeClock(100.0, tick=0.5)
    assert (clock.time(), clock.monotonic()) == (100.5, 101.0)
    clock.sleep(60.0)
    assert (clock.now, clock.slept) == (161.0, [60.0])
