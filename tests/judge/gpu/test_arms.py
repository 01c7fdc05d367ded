"""Artifacts of the GPU judge: what is captured from what, which configuration of an autotuned kernel is pinned, what is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError, TaskError
from keepfast.judge.endings import Failure
from keepfast.judge.gpu import arms
from keepfast.judge.gpu.arms import Arms, Artifact
from keepfast.judge.gpu.judge import _plan_facts
from keepfast.judge.gpu.workers import Captured
from keepfast.materialise import tree_hash
from keepfast.model import Baseline, Build, Candidate, Fact, File, Reason, Rules
from tests.judge.tasks import softmax_task

from . import inside
from .inside import Acts, FakePool, stage

MAIN, SMALL, ODD = stage("main", calls=5), stage("small", calls=2), stage("odd", calls=1, use="correct")
BY_CASE = ("main", "small", "odd")
Pace = Callable[[Artifact, Captured], dict[str, float] | Failure]
PATH = "kernel/kernel.py"


def alike(*factors: float) -> dict[str, list[float]]:
    """Configurations that cost the same in every case."""
    return {case: list(factors) for case in BY_CASE}


def candidate(n: int = 0, **acts: Any) -> Candidate:
    files = (File(PATH, Acts(**acts).source()),)
    return Candidate(files, tree_hash(files), "", n)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.pool = FakePool()
        self.task = softmax_task(
            str(folder), languages=("triton",), entry_path=PATH, baselines=(Baseline("eager", "baselines/eager.py", "torch"),)
        )
        self.arms = Arms(self.task, SimpleNamespace(), folder, self.pool)  # type: ignore[arg-type]
        self.arms.stages, self.arms.samples = (MAIN, SMALL, ODD), (b"m", b"", b"ood")
        self.paced: list[dict[str, tuple[tuple[str, int], ...]]] = []

    def artifact(self, **acts: Any) -> Artifact:
        made = self.arms.build(self.arms.of(candidate(**acts)))
        assert isinstance(made, Artifact)
        return made

    def captured(self, artifact: Artifact, take: int = 0) -> Captured:
        found = self.arms.capture(artifact, take)
        assert isinstance(found, Captured)
        return found

    def tuned(self, pace: Pace | None = None, **configs: dict[str, list[float]]) -> Artifact | Failure:
        """An artifact with autotuned kernels, pinned."""
        artifact = self.artifact(configs=configs)
        first = self.arms.capture(artifact, 0)
        if isinstance(first, Failure):
            return first
        return self.arms.pin(artifact, pace or self.pace) or artifact

    def pace(self, artifact: Artifact, captured: Captured) -> dict[str, float] | Failure:
        """As the checker's: of the timed cases."""
        self.paced.append({w.layout.case: w.pins for w in self.pool.subjects[-1].cases})
        return {one.name: msgspec.json.decode(captured.arm(one.name).data, type=inside.Replica).ns for one in (MAIN, SMALL)}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(arms.builder, "tree", inside.tree)
    return Bench(tmp_path)


# ---- builds and captures


def test_a_build_is_made_once_and_a_failure_is_not_kept(bench: Bench) -> None:
    assert bench.artifact() is bench.artifact()
    files = (File(PATH, b"does not build"),)
    failed = bench.arms.build(bench.arms.of(Candidate(files, "x", "")))
    assert failed == Failure(Reason.BUILD, "kernel.py:1: invalid syntax")
    assert "x" not in bench.arms.made


def test_a_capture_gets_everything_of_the_tree_and_of_the_cases(bench: Bench) -> None:
    artifact = bench.artifact()
    bench.captured(artifact)
    (subject,) = bench.pool.subjects
    assert (subject.language, subject.entry_path, subject.entry_symbol) == ("triton", PATH, "kernel")
    assert (subject.files, subject.path, subject.library) == (artifact.tree.files, ("kernel",), None)
    assert [(w.layout.case, w.calls, w.pins, w.sample) for w in subject.cases] == [
        ("main", 5, (), 1),
        ("small", 2, (), 0),
        ("odd", 1, (), 3),
    ]
    assert subject.samples == (b"m", b"", b"ood")


@pytest.mark.parametrize(
    ("changes", "prepare"), [({}, "weights"), ({"prepare": "step"}, "step"), ({"rules": Rules(prepare="forbidden")}, "")]
)
def test_a_capture_is_told_what_a_prepare_is(bench: Bench, changes: dict[str, Any], prepare: str) -> None:
    bench.arms.task = replace(bench.arms.task, **changes)
    bench.captured(bench.artifact())
    assert bench.pool.subjects[0].prepare == prepare


def test_a_verdict_says_how_much_is_outside_the_clock(bench: Bench) -> None:
    captured = bench.captured(bench.artifact())
    assert "prepare" not in [fact.name for fact in _plan_facts(captured)]
    plans = {name: replace(p, plan=replace(p.plan, prepare=p.plan.nodes)) for name, p in captured.plans.items()}
    assert _plan_facts(replace(captured, plans=plans))[-1] == Fact("prepare", "1 nodes a call, outside the clock")


def test_a_prepare_with_the_c_abi_is_refused(bench: Bench) -> None:
    bench.arms.task = replace(bench.arms.task, languages=("cuda",), entry_path="kernel/kernel.cu")
    files = (File("kernel/kernel.cu", b'extern "C" int prepare(const float *w) {\n    return 0;\n}\n'),)
    found = bench.arms.build(bench.arms.of(Candidate(files, "x", "")))
    assert isinstance(found, Failure)
    assert (found.reason, "kernel/kernel.cu defines `prepare`" in found.detail) == (Reason.RULE, True)


def test_each_take_is_another_capture_made_once(bench: Bench) -> None:
    artifact = bench.artifact()
    assert artifact.code == ""
    first = bench.captured(artifact)
    assert bench.captured(artifact, 1) is not first
    assert bench.captured(artifact) is first
    assert len(bench.pool.subjects) == 2


def test_code_is_of_all_cases_and_equal_for_equal_launches(bench: Bench) -> None:
    one, same, other = bench.artifact(code="a"), bench.artifact(code="a", ns=1.0), bench.artifact(code="b")
    for artifact in (one, same, other):
        bench.captured(artifact)
    assert one.code == same.code != other.code


def test_what_passed_before_and_fails_now_is_the_machines_matter(bench: Bench) -> None:
    artifact = bench.artifact(crashes=("capture 1",))
    assert bench.arms.kept(artifact, 0) is bench.captured(artifact)
    with pytest.raises(MachineError, match="which passed before, cannot be captured any more: the host code raised"):
        bench.arms.kept(artifact, 1)
    assert list(artifact.takes) == [0]


# ---- baselines


def test_a_baseline_is_captured_as_if_it_were_a_candidate(bench: Bench) -> None:
    folder = Path(bench.task.folder)
    (folder / "baselines").mkdir()
    (folder / "baselines/eager.py").write_bytes(Acts().source())
    arm = bench.arms.baseline("eager")
    assert (arm.key, arm.timeout_s) == ("baseline eager", arms.BASELINE_S)
    assert (arm.task.languages, arm.task.entry_path, arm.task.editable) == (("torch",), "baselines/eager.py", ("baselines/eager.py",))
    made = bench.arms.build(arm)
    assert isinstance(made, Artifact)
    assert bench.captured(made).plans.keys() == set(BY_CASE)
    with pytest.raises(TaskError, match="no baseline `fast`"):
        bench.arms.baseline("fast")


def test_a_baseline_may_lie_outside_of_the_root(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines/eager.py").write_bytes(b"x = 1\n")
    bench.arms.task = softmax_task(str(tmp_path), root=str(tmp_path / "kernel"), baselines=bench.task.baselines, build=Build())
    assert [f.path for f in bench.arms.baseline("eager").candidate.files] == ["baselines/eager.py"]


# ---- autotuned kernels


def pins(artifact: Artifact | Failure) -> dict[str, tuple[tuple[str, int], ...]]:
    assert isinstance(artifact, Artifact), artifact
    assert artifact.pinned
    return artifact.pins


def test_each_case_gets_its_own_fastest_configuration(bench: Bench) -> None:
    factors = {"main": [3.0, 1.0, 2.0], "small": [1.0, 3.0, 2.0], "odd": [1.0, 1.0, 1.0]}
    found = pins(bench.tuned(rms_k=factors))
    assert (found["main"], found["small"]) == ((("rms_k", 1),), (("rms_k", 0),))
    assert bench.paced == [dict.fromkeys(BY_CASE, (("rms_k", i),)) for i in range(3)]


def test_cases_that_are_not_timed_get_what_serves_the_timed_ones_best(bench: Bench) -> None:
    """Of all timed cases, each weighing the same: not of the one whose calls are short."""
    factors = {"main": [1.0, 2.0, 1.5], "small": [0.3, 0.1, 0.11], "odd": [1.0, 1.0, 1.0]}
    assert pins(bench.tuned(rms_k=factors))["odd"] == (("rms_k", 2),)


def test_a_pinned_artifact_is_captured_again_with_its_pins(bench: Bench) -> None:
    artifact = bench.tuned(rms_k=alike(2.0, 1.0))
    assert isinstance(artifact, Artifact)
    assert len(bench.pool.subjects) == 1 + 2 + 1
    bench.captured(artifact)
    bench.captured(artifact, 1)
    assert len(bench.pool.subjects) == 5
    assert {w.layout.case: w.pins for w in bench.pool.subjects[-1].cases} == artifact.pins
    assert bench.arms.pin(artifact, bench.pace) is None
    assert len(bench.pool.subjects) == 5


def test_several_kernels_are_tuned_one_after_the_other(bench: Bench) -> None:
    found = pins(bench.tuned(one=alike(2.0, 1.0), two=alike(1.0, 2.0, 3.0)))
    assert found == dict.fromkeys(BY_CASE, (("one", 1), ("two", 0)))
    assert [paced["main"] for paced in bench.paced] == [(("one", 0),), (("one", 1),), *((("one", 1), ("two", i)) for i in range(3))]


def test_a_configuration_that_fails_is_no_choice(bench: Bench) -> None:
    found = pins(bench.tuned(rms_k=alike(2.0, 1.0, 0.0)))  # the last does not compile
    assert found["main"] == (("rms_k", 1),)

    def pace(artifact: Artifact, captured: Captured) -> dict[str, float] | Failure:
        ns = bench.pace(artifact, captured)
        return Failure(Reason.CRASH, "too much shared memory") if bench.paced[-1]["main"][-1][1] == 1 else ns

    assert pins(bench.tuned(pace, rms_k=alike(2.0, 1.0, 3.0)))["main"] == (("rms_k", 0),)


def test_when_every_configuration_fails_the_last_failure_is_told_and_nothing_is_pinned(bench: Bench) -> None:
    crash = Failure(Reason.CRASH, "too much shared memory")
    assert bench.tuned(lambda artifact, captured: crash, rms_k=alike(2.0, 1.0)) == crash
    (artifact,) = bench.arms.made.values()
    assert (artifact.pins, artifact.pinned) == ({}, False)


def test_a_machine_that_fails_while_tuning_leaves_nothing_half_pinned(bench: Bench) -> None:
    def pace(artifact: Artifact, captured: Captured) -> dict[str, float]:
        if len(bench.paced) == 3:
            raise MachineError("gave no answer")
        return bench.pace(artifact, captured)  # type: ignore[return-value]

    with pytest.raises(MachineError):
        bench.tuned(pace, one=alike(2.0, 1.0), two=alike(1.0, 2.0))
    (artifact,) = bench.arms.made.values()
    assert (artifact.pins, artifact.pinned) == ({}, False)
    assert bench.arms.pin(artifact, bench.pace) is None
    assert artifact.pins["main"] == (("one", 1), ("two", 0))


def test_a_kernel_with_one_configuration_is_not_tuned(bench: Bench) -> None:
    assert pins(bench.tuned(rms_k=alike(1.0))) == {}
    assert len(bench.pool.subjects) == 1


def test_not_all_of_very_many_configurations_are_tried(bench: Bench) -> None:
    bench.tuned(rms_k=alike(*[1.0] * 100))
    assert len(bench.paced) == arms.MOST_CONFIGS


def test_nothing_is_pinned_before_a_first_capture(bench: Bench) -> None:
    artifact = bench.artifact()
    assert bench.arms.pin(artifact, bench.pace) is None
    assert not artifact.pinned


# ---- what is remembered


def test_of_many_artifacts_those_last_used_are_remembered_and_what_is_lasting(bench: Bench) -> None:
    start, champion = bench.artifact(code="start"), bench.artifact(code="champion")
    bench.arms.lasting = {start.arm.key}
    for i in range(2 * arms.KEPT):
        made = bench.artifact(code=f"{i}")
        for take in (0, 1):  # even what came as far as the confirm rounds
            bench.captured(made, take)
        assert bench.artifact(code="champion") is champion
    assert bench.artifact(code="start") is start
    assert len(bench.arms.made) <= arms.KEPT + 2
    assert candidate(code=f"{2 * arms.KEPT - 1}").tree in bench.arms.made
    assert candidate(code="0").tree not in bench.arms.made


def test_baselines_are_remembered(bench: Bench) -> None:
    folder = Path(bench.task.folder)
    (folder / "baselines").mkdir()
    (folder / "baselines/eager.py").write_bytes(Acts().source())
    made = bench.arms.build(bench.arms.baseline("eager"))
    for i in range(2 * arms.KEPT):
        bench.artifact(code=f"{i}")
    assert bench.arms.build(bench.arms.baseline("eager")) is made
