"""The GPU judge up to the clock: the ladder, code that is known, beginning, resuming, baselines, direct measurements, calibration."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError, TaskError
from keepfast.gpu.messages import Mutant
from keepfast.judge import calibrate
from keepfast.judge.gpu import judge as judges
from keepfast.judge.gpu.noise import LAYOUTS
from keepfast.model import Baseline, Candidate, Case, File, Kind, Reason, Rules

from .inside import Acts
from .stand import QUIET, START, Stand, candidate, climbed, gpu_task, rungs, source

Stands = Callable[..., Stand]
CHECKED = ("guard", "build", "plan", "correct", "rules")
WRONG = {"verbatim": {"wrong": "out[3] is 0"}}


# ---- the ladder


def test_the_first_failure_ends_it(stand: Stand) -> None:
    stand.begun()
    outside = stand.judge.evaluate(Candidate((*START.files, File("reference.py", b"")), "t", "", 2), START, ())
    broken = stand.judge.evaluate(source(b"does not build"), START, ())
    raised = stand.evaluate(code="raises", crashes=("capture",))
    wrong = stand.evaluate(code="wrong", said=WRONG)
    other = stand.evaluate(code="torch", shares={"rms_k": 0.2, "nvjet_hsh_64x8": 0.8})
    found = (outside, broken, raised, wrong, other)
    assert [rungs(v) for v in found] == [climbed(*CHECKED[: i + 1], last=False) for i in range(5)]
    assert [v.reason for v in found] == [Reason.GUARD, Reason.BUILD, Reason.CRASH, Reason.WRONG, Reason.LANGUAGE]
    assert broken.detail == "kernel.py:1: invalid syntax"
    assert wrong.detail == "case main: out[3] is 0"
    assert "cuBLAS" in other.detail
    assert [len(v.code) for v in found] == [0, 0, 0, 64, 64]
    assert stand.launchers.timed() == []
    for verdict in found:
        assert (verdict.kind, verdict.walls, verdict.rounds) == (Kind.REJECT, "partial", ())
        assert verdict.seconds >= sum(r.seconds for r in verdict.rungs) > 0
    told = [(e.text, dict(e.numbers)["ok"]) for e in stand.told]
    assert told == [rung for verdict in found for rung in rungs(verdict)]


def test_library_kernels_may_be_against_the_rules(stands: Stands, tmp_path: Path) -> None:
    stand = stands(gpu_task(tmp_path, rules=Rules(library_kernels="forbidden"))).begun()
    found = stand.evaluate(code="mixed", shares={"rms_k": 0.9, "nvjet_hsh_64x8": 0.1})
    assert (found.reason, rungs(found)) == (Reason.RULE, climbed(*CHECKED, last=False))
    assert "the task forbids them" in found.detail


def test_kernels_weigh_as_their_cases_do(stands: Stands, tmp_path: Path) -> None:
    cases = tuple(
        Case(name, (("m", 8), ("n", 8)), weight, use)
        for name, weight, use in (("main", 3.0, "both"), ("more", 1.0, "time"), ("odd", 9.0, "correct"))
    )
    stand = stands(gpu_task(tmp_path, cases=cases)).begun()
    checked = stand.judge._again(START)
    right = checked.correct.of("main")
    fill = replace(right.kernels[0], name="fill")
    uneven = replace(
        checked.correct,
        cases=(
            right,
            replace(right, case="more", kernels=(replace(right.kernels[0], share=0.2), replace(fill, share=0.8))),
            replace(right, case="odd", kernels=(replace(fill, share=1.0),)),
        ),
    )
    found = stand.judge.allowed.shares(checked.artifact, uneven)
    assert {k.name: k.share for k in found} == {"rms_k": pytest.approx(0.8), "fill": pytest.approx(0.2)}


LEAF = {"rms_k": 0.83, "nvjet_hsh_64x8": 0.17}


def test_time_that_is_there_only_while_it_is_watched_is_not_the_languages(stand: Stand) -> None:
    stand.begun()
    assert stand.evaluate(code="busy", shares=LEAF, watched=(120.0, 125.0)).reason is not Reason.LANGUAGE
    found = stand.evaluate(code="leaf", shares=LEAF, watched=(120.0, 24.0))
    assert (found.reason, found.rungs[-1].name) == (Reason.LANGUAGE, "rules")
    assert "its triton kernels (`rms_k`) have 15 % of GPU time, half is the least" in found.detail
    assert found.detail.endswith(
        "case main: its kernels take 120.0 us a call while each is watched, and there is room for 24.0 us in the chain that is timed"
    )


def test_facts_of_the_rungs(stand: Stand) -> None:
    facts = {r.name: {f.name: f.value for f in r.facts} for r in stand.begin().verdict.rungs}
    assert facts["build"] == {"files": "1"}
    assert facts["plan"] == {"nodes": "1 a call", "host code": "12 us a call", "capture": "0.5 s"}
    assert facts["correct"]["checked"] == "2 cases, chains of some calls, 20 launches of all"
    assert facts["rules"] == {"from Triton": "100 % of GPU time, 1 of 1 launches: `rms_k`"}


def test_a_machine_that_fails_during_the_check_is_the_loops_matter(stand: Stand) -> None:
    stand.begun()
    stand.pool.failing = True
    with pytest.raises(MachineError, match="no GPU"):
        stand.evaluate(code="a")


# ---- what is drawn


def test_element_types_are_known_to_builds(stand: Stand) -> None:
    stand.begun()
    assert stand.judge.arms.dtypes == {"x": "float32", "out0": "uint8"}


def test_captures_run_on_a_sample_of_each_case(stand: Stand) -> None:
    stand.begin()
    assert stand.oracle.filled[:2] == [("main", 1, "host"), ("odd", 1, "host")]
    (subject,) = stand.pool.subjects
    assert [w.sample for w in subject.cases] == [4096, 4096]
    assert subject.samples[0].startswith(b"main 4097\0")


def test_every_check_draws_new_contents_and_leaves_none_open(stand: Stand) -> None:
    stand.begun()
    before = len(os.listdir("/proc/self/fd"))
    stand.evaluate(code="a", said=WRONG)
    stand.evaluate(code="b", said=WRONG)
    assert stand.oracle.filled == [("main", 4, "gpu"), ("odd", 4, "gpu")] * 2
    assert len(set(stand.oracle.seeds)) == len(stand.oracle.seeds)
    assert all(len(seed) == 4 for seed in stand.oracle.seeds)
    assert len(os.listdir("/proc/self/fd")) == before
    stand.judge.close()
    stand.judge.close()
    assert len(os.listdir("/proc/self/fd")) == before - 2


# ---- code that is known


def test_the_champions_own_code_is_not_checked_again(stand: Stand) -> None:
    stand.begun()
    found = stand.evaluate(code="start", ns=1.0)
    assert (found.kind, found.reason, found.detail) == (Kind.REVERT, Reason.SAME_CODE, "launches the same code as experiment 1")
    assert rungs(found) == climbed("guard", "build", "plan")
    assert found.code == stand.judge.arms.made[START.tree].code
    assert stand.launchers.opened == []
    assert stand.evaluate(replace(START, n=0), code="start", ns=2.0).detail == "launches the same code as the kernel before"


def test_code_that_was_judged_before_is_not_judged_again(stand: Stand) -> None:
    stand.begun()
    first = stand.evaluate(code="a", ns=9999.0)
    stand.codes[first.code] = 9
    again = stand.evaluate(code="a")
    assert (again.reason, again.detail) == (Reason.SAME_CODE, "launches the same code as experiment 9")


def test_autotuned_kernels_are_pinned_before_their_code_is_known(stand: Stand) -> None:
    stand.begun()
    configs = {"rms_k": {"main": [2.0, 0.5, 0.0], "odd": [1.0, 1.0, 1.0]}}
    found = stand.evaluate(code="tuned", configs=configs)
    assert found.kept, found.detail
    assert found.gain is not None
    assert found.gain.speedup == pytest.approx(2.0)
    made = stand.judge.arms.made[candidate(code="tuned", configs=configs).tree]
    assert made.pins == {"main": (("rms_k", 1),), "odd": (("rms_k", 1),)}
    assert found.code == made.code


def test_a_kernel_of_which_no_configuration_runs_fails_in_the_plan(stand: Stand) -> None:
    stand.begun()
    found = stand.evaluate(code="tuned", configs={"rms_k": {"main": [1.0, 1.0], "odd": [1.0, 1.0]}}, crashes=("solo",))
    assert (found.reason, rungs(found)) == (Reason.CRASH, climbed("guard", "build", "plan", last=False))


# ---- beginning


@pytest.mark.parametrize("verb", ["begin", "ready"])
def test_a_start_that_is_wrong_begins_nothing(stand: Stand, verb: str) -> None:
    wrong = candidate(1, said=WRONG)
    if verb == "ready":
        assert stand.judge.ready(wrong, QUIET).reason is Reason.WRONG
    else:
        begin = stand.begin(wrong)
        assert (begin.verdict.reason, begin.calibration, begin.baselines) == (Reason.WRONG, None, ())
    assert stand.launchers.timed() == []


def test_a_known_calibration_is_taken(stand: Stand) -> None:
    begin = stand.begin()
    assert stand.judge.arms.lasting == {START.tree}
    assert begin.calibration == QUIET
    assert (begin.verdict.kind, begin.verdict.reason, begin.baselines) == (Kind.KEEP, Reason.START, ())
    assert begin.verdict.mde is not None
    assert stand.launchers.timed() == []
    assert (stand.told[-1].text, stand.told[-1].calibration) == ("gains above 0.3 % count", QUIET)


def test_nothing_can_be_measured_before_the_beginning(stand: Stand) -> None:
    with pytest.raises(MachineError, match="the judge has not begun"):
        stand.judge.calibrated()


# ---- calibration


def test_a_calibration_compares_two_captures_and_captures_in_other_arenas(stand: Stand) -> None:
    begin = stand.begin(calibration=None)
    arms = [tuple(take for _, take in arms) for _, arms in stand.launchers.timed()]
    moved = [(take, 0) for take in range(2, 2 + LAYOUTS) for _ in range(calibrate.PAD_ROUNDS)]
    assert arms == [(0, 1)] * calibrate.ROUNDS + moved
    assert {case for case, _ in stand.launchers.timed()} == {"main"}
    assert list(stand.judge.arms.made[START.tree].takes) == [0, 1]
    found = begin.calibration
    assert found is not None
    assert (found.machine, found.rounds, found.layouts) == ("m", calibrate.ROUNDS, LAYOUTS)
    assert (found.sigma, found.offset, found.layout) == (calibrate.SIGMA_FLOOR, 0.0, 0.0)
    assert (found.block_ms, found.sentinel_ns) == (pytest.approx(1.0), pytest.approx(0.7e6))
    assert [e.text for e in stand.told if e.kind == "calibrate"][:2] == ["the same kernel in both arms", "the same code in other places"]


def test_a_calibration_is_measured_once_and_on_a_quiet_card(stand: Stand) -> None:
    stand.begin(calibration=None)
    assert stand.card.fits == stand.pool.settled == 1 + LAYOUTS
    count = len(stand.launchers.timed())
    assert stand.judge.calibrated() is stand.judge.calibrated()
    assert len(stand.launchers.timed()) == count


def test_sigma_offset_and_layout_come_from_their_own_rounds(stand: Stand) -> None:
    noise = iter((0.01, -0.01) * 4)
    places = {2: 0.03, 3: -0.03, 4: 0.03, 5: -0.03}
    stand.launchers.noise = lambda subject, opponent: places[subject.take] if subject.take > 1 else next(noise) + 0.002
    found = stand.begin(calibration=None).calibration
    assert found is not None
    assert found.sigma == pytest.approx(calibrate.CONFIDENCE * 0.01 * (8 / 7) ** 0.5)
    assert found.sigma_of("main") == pytest.approx(found.sigma)
    assert found.offset == pytest.approx(0.002)
    assert 0.02 < found.layout < 0.03


def test_a_start_that_fails_while_calibrating_is_the_machines_matter(stand: Stand) -> None:
    with pytest.raises(MachineError, match="a kernel that passed before fails in calibrate rounds: case main: illegal address"):
        stand.begin(candidate(1, crashes=("timed",)), None)
    with pytest.raises(MachineError, match="which passed before, cannot be captured any more"):
        stand.begin(candidate(1, crashes=("capture 3",)), None)


# ---- baselines and direct measurements

BASELINES = {
    "broken": b"does not build",
    "eager": Acts(code="eager", ns=20_000.0, shares={"at::native::add": 1.0}).source(),
    "raises": Acts(code="raises", crashes=("capture",)).source(),
    "tuned": Acts(code="tuned", configs={"k": {"main": [1.0, 0.25], "odd": [1.0, 1.0]}}).source(),
    "wrong": Acts(code="wrong", said=WRONG).source(),
}


def with_baselines(stands: Stands, folder: Path, *names: str) -> Stand:
    (folder / "baselines").mkdir()
    for name in names:
        (folder / f"baselines/{name}.py").write_bytes(BASELINES[name])
    known = tuple(Baseline(name, f"baselines/{name}.py", "torch") for name in names)
    return stands(gpu_task(folder, baselines=known))


def test_baselines_are_checked_and_measured_against_the_start(stands: Stands, tmp_path: Path) -> None:
    found = {b.name: b for b in with_baselines(stands, tmp_path, *BASELINES).begin().baselines}
    assert [b.name for b in found.values() if b.ok] == ["eager", "tuned"]
    assert found["broken"].detail == "does not compile: kernel.py:1: invalid syntax"
    assert found["raises"].detail == "crashed: the host code raised"
    assert found["wrong"].detail == "wrong result: case main: out[3] is 0"
    eager, tuned = found["eager"].estimate, found["tuned"].estimate
    assert eager is not None
    assert tuned is not None
    assert (eager.speedup, eager.opponent, eager.rounds) == (pytest.approx(0.5), "start", judges.BASELINE_ROUNDS)
    assert tuned.speedup == pytest.approx(4.0)


def test_a_champion_is_compared_with_the_start_and_with_a_baseline(stands: Stands, tmp_path: Path) -> None:
    stand = with_baselines(stands, tmp_path, "eager").begun()
    champion = candidate(5, code="fast", ns=5000.0)
    found = stand.judge.compare(champion, "start", 3, False)
    assert (found.n, found.against, found.final, found.estimate.rounds) == (5, "start", False, 3)
    assert found.estimate.speedup == pytest.approx(2.0)
    assert [(c.case, c.subject_ns) for c in found.cases] == [("main", pytest.approx(5000.0))]
    best = stand.judge.compare(champion, "baseline eager", 2, True)
    assert (best.against, best.final, best.estimate.speedup) == ("baseline eager", True, pytest.approx(4.0))
    timed = [arms for _, arms in stand.launchers.timed()]
    assert timed == [(("fast", 0), ("start", 0))] * 3 + [(("fast", 0), ("eager", 0))] * 2


def test_a_direct_measurement_of_a_judge_that_knows_no_noise_finds_it_first(stands: Stands, tmp_path: Path) -> None:
    """And then draws the contents that it measures on."""
    stand = with_baselines(stands, tmp_path, "eager")
    assert stand.judge.ready(START, None).kept
    assert stand.judge.compare(START, "baseline eager", 2, True).estimate.speedup == pytest.approx(2.0)
    assert stand.judge.calibration is not None


def test_a_direct_measurement_that_cannot_be_made(stands: Stands, tmp_path: Path) -> None:
    stand = with_baselines(stands, tmp_path, "eager", "raises").begun()
    with pytest.raises(MachineError, match="baseline raises cannot be captured any more: the host code raised"):
        stand.judge.compare(START, "baseline raises", 2, True)
    with pytest.raises(TaskError, match="no baseline `other`"):
        stand.judge.compare(START, "baseline other", 2, True)
    with pytest.raises(MachineError, match="the champion, kept before, now fails: case main"):
        stand.judge.compare(candidate(5, said=WRONG), "start", 2, True)
    with pytest.raises(MachineError, match="fails in direct rounds"):
        stand.judge.compare(candidate(5, code="late", crashes=("timed",)), "start", 2, True)


# ---- lint


def test_lint_gives_the_mutation_score(stands: Stands) -> None:
    mutants = (Mutant("zeros", "main", False), Mutant("zeros", "odd", True), Mutant("row 0", "main", True), Mutant("row 0", "odd", True))
    found = stands(mutants=mutants).judge.lint()
    assert found.score == "2 of 2 mutants killed in 2 cases"
    assert [(m.name, m.killed_by) for m in found.mutants] == [("zeros", "odd"), ("row 0", "main")]
    with pytest.raises(TaskError, match="a wrong answer would pass: zeros"):
        stands(mutants=mutants[:1]).judge.lint()
