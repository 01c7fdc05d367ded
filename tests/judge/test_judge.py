"""The CPU judge: rungs in their order, the first failure ends it; building and checking are real, the clock is a script."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.judge import judge as judges
from keepfast.judge import trial
from keepfast.judge.channel import Failure, RunnerSpec
from keepfast.judge.clock import Disturbed, Timed, Timing
from keepfast.judge.contents import Library
from keepfast.judge.judge import Bench, CpuJudge
from keepfast.judge.watch import EVERY
from keepfast.model import Candidate, CaseRound, Event, File, Kind, Machine, Phase, Reason, Round, Task, Verdict
from keepfast.walls.base import Walls
from tests.judge import tasks
from tests.judge.made_rounds import calibrated
from tests.judge.tasks import kernel

MACHINE = Machine("cpu", 2, "6", "gcc", "walls", hash="m")
START = tasks.candidate(tasks.looping(4), 1)
LIMITED = tasks.GOAL + '[limit]\nbytes = "8*n"\n'
Answer = Timing | Failure | Disturbed
Make = Callable[..., "Stand"]


class FakeClock:
    """Every round is what `answer` says for the artifact of the subject; the start itself takes a millisecond."""

    def __init__(self) -> None:
        self.answer: Callable[[int], float | Failure | Disturbed] = lambda i: 0.0
        self.arms: list[tuple[RunnerSpec, RunnerSpec]] = []

    def round(self, phase: Phase, arms: tuple[RunnerSpec, RunnerSpec], cases: tuple[Timed, ...]) -> Answer:
        self.arms.append(arms)
        found = self.answer(len(self.arms))
        if isinstance(found, Failure | Disturbed):
            return found
        rounds = tuple(CaseRound(t.name, found, 1e6 * math.exp(found), 1e6) for t in cases)
        return Timing(Round(phase, found, rounds, 700.0, 0.1), (), ())


class Stand:
    """A judge with its clock, what it told, and code that was judged before."""

    def __init__(self, task: Task, walls: Walls, library: Library, builds: Path, machine: Machine) -> None:
        self.told: list[Event] = []
        self.codes: dict[str, int] = {}
        bench = Bench(task, walls, machine, library, builds, self.codes.get, self.told.append, Random(7))
        self.judge, self.clock = CpuJudge(bench), FakeClock()
        self.judge.trial.clock = self.clock  # type: ignore[assignment]

    def begun(self) -> Stand:
        begin = self.judge.begin(START, calibrated(sigma=0.001))
        assert begin.verdict.kept
        self.told.clear()
        self.clock.arms.clear()
        return self

    def evaluate(self, code: str, against: Candidate = START) -> Verdict:
        return self.judge.evaluate(tasks.candidate(code, 2), against, ())


@pytest.fixture
def make(tmp_path: Path, walls: Walls, library: Library, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(trial, "PAUSES_S", (0.0, 0.0))
    with ExitStack() as stack:

        def made(task: Task | None = None, machine: Machine = MACHINE) -> Stand:
            builds = walls.folder()
            stack.callback(shutil.rmtree, builds)
            return Stand(task or tasks.write(tmp_path), walls, library, builds, machine)

        yield made


def rungs(verdict: Verdict) -> list[tuple[str, bool]]:
    return [(r.name, r.ok) for r in verdict.rungs]


# --------------------------------------------------------------------------------------------- the ladder


def test_the_first_failure_ends_it(make: Make) -> None:
    stand = make().begun()
    outside = Candidate((*START.files, File("reference.py", b"")), "t", "", 2)
    guarded = stand.judge.evaluate(outside, START, ())
    assert (guarded.reason, rungs(guarded)) == (Reason.GUARD, [("guard", False)])
    assert "t" not in stand.judge.arms.built
    broken = stand.evaluate(kernel("    return j;"))
    assert (broken.reason, rungs(broken)) == (Reason.BUILD, [("guard", True), ("build", False)])
    assert broken.detail == "kernel.c:6: 'j' undeclared"
    wrong = stand.evaluate(kernel("    out[0] = x[0];"))
    assert (wrong.reason, rungs(wrong)) == (Reason.WRONG, [("guard", True), ("build", True), ("correct", False)])
    assert len(wrong.code) == 64
    assert stand.clock.arms == []
    for verdict in (guarded, broken, wrong):
        assert verdict.kind is Kind.REJECT
        assert verdict.walls == stand.judge.bench.walls.strength
        assert verdict.rounds == ()
        assert verdict.seconds >= sum(r.seconds for r in verdict.rungs) > 0
    assert [(e.text, dict(e.numbers)["ok"]) for e in stand.told] == [*rungs(guarded), *rungs(broken), *rungs(wrong)]


def test_a_gain_climbs_all_rungs(make: Make, tmp_path: Path) -> None:
    stand = make(tasks.write(tmp_path, text=tasks.toml(extra=LIMITED)), replace(MACHINE, ceilings=(("copy_1MB_GBps", 1.0),))).begun()
    stand.clock.answer = lambda i: -0.5
    found = stand.evaluate(tasks.RIGHT)
    assert (found.kind, found.reason) == (Kind.KEEP, Reason.FASTER)
    assert rungs(found) == [("guard", True), ("build", True), ("correct", True), ("time", True)]
    assert found.gain is not None
    assert found.gain.d == pytest.approx(-0.5)
    assert found.gain.opponent == "experiment 1"
    assert (found.test is not None, found.screen) == (True, -0.5)
    assert [r.phase for r in found.rounds] == [Phase.SCREEN] + [Phase.TEST] * 4 + [Phase.CONFIRM] * 6
    assert found.cases[0].limit_ns == 8 * 4096
    assert found.mde is not None
    assert found.false_keep is not None
    (arms,) = set(stand.clock.arms)
    assert arms[0].artifact != arms[1].artifact == stand.judge.arms.spec(START).artifact


def test_no_gain_and_a_loss_are_reverted(make: Make) -> None:
    stand = make().begun()
    assert stand.evaluate(tasks.looping(3)).reason is Reason.NO_GAIN
    stand.clock.answer = lambda i: 0.1
    slower = stand.evaluate(tasks.looping(5))
    assert (slower.reason, len(slower.rounds)) == (Reason.SLOWER, 1)
    assert rungs(slower)[-1] == ("time", False)


def test_too_fast_to_be_true(make: Make, tmp_path: Path) -> None:
    task = tasks.write(tmp_path, text=tasks.toml(extra=LIMITED))
    stand = make(task, replace(MACHINE, ceilings=(("copy_1MB_GBps", 0.001),))).begun()
    found = stand.evaluate(tasks.RIGHT)
    assert (found.kind, found.reason, found.cheat) == (Kind.SUSPECT, Reason.TOO_FAST, False)
    assert len(found.rounds) == 1


def test_a_failure_while_timed_keeps_what_was_measured(make: Make) -> None:
    stand = make().begun()
    stand.clock.answer = lambda i: -0.5 if i < 2 else Failure(Reason.STATEFUL, "old", True)
    found = stand.evaluate(tasks.RIGHT)
    assert (found.kind, found.reason, found.detail, found.cheat) == (Kind.REJECT, Reason.STATEFUL, "old", True)
    assert len(found.rounds) == 1


# --------------------------------------------------------------------------------------------- code that is known


def test_the_champions_own_code_is_not_timed(make: Make) -> None:
    stand = make().begun()
    renamed = stand.evaluate("/* the same */\n" + START.files[0].data.decode().replace("kept", "value"))
    assert (renamed.kind, renamed.reason) == (Kind.REVERT, Reason.SAME_CODE)
    assert renamed.detail == "the same machine code as experiment 1"
    assert rungs(renamed) == [("guard", True), ("build", True)]
    assert renamed.code == stand.judge.arms.code(START)
    by_hand = stand.evaluate("/* the same */\n" + tasks.looping(4), replace(START, n=0))
    assert by_hand.detail == "the same machine code as the kernel before"


def test_code_that_was_judged_before_is_not_judged_again(make: Make) -> None:
    stand = make().begun()
    first = stand.evaluate(tasks.looping(3))
    stand.codes[first.code] = 9
    again = stand.evaluate("\n\n" + tasks.looping(3))
    assert (again.reason, again.detail) == (Reason.SAME_CODE, "the same machine code as experiment 9")


# --------------------------------------------------------------------------------------------- beginning, resuming, machines


def test_a_start_that_is_wrong_begins_nothing(make: Make) -> None:
    begin = make().judge.begin(tasks.candidate(kernel("    out[0] = x[0];"), 1), calibrated())
    assert (begin.verdict.reason, begin.calibration, begin.baselines) == (Reason.WRONG, None, ())


def test_a_known_calibration_is_taken_and_another_is_measured(make: Make) -> None:
    known = calibrated(sigma=0.0123)
    stand = make()
    assert stand.judge.begin(START, known).calibration == known
    assert "experiments an hour" in stand.told[-1].text
    assert stand.told[-1].calibration == known
    fresh = make()
    found = fresh.judge.begin(START, None).calibration
    assert found is not None
    assert found.machine == "m"
    assert len(fresh.clock.arms) == 8 + 5 * 3 + 1


def test_baselines_are_checked_and_measured_against_the_start(make: Make, tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "plain.c").write_text(tasks.RIGHT)
    (tmp_path / "baselines" / "numpy.py").write_text("import numpy as np\n\ndef kernel(x, out):\n    np.add(x * x, 1, out=out)\n")
    (tmp_path / "baselines" / "wrong.c").write_text(kernel("    out[0] = 1;"))
    (tmp_path / "baselines" / "broken.c").write_text(kernel("    return j;"))
    stand = make(tasks.write(tmp_path))
    stand.clock.answer = lambda i: -0.25
    found = {b.name: b for b in stand.judge.begin(START, calibrated()).baselines}
    assert [name for name, b in found.items() if b.ok] == ["numpy", "plain"]
    numpy = found["numpy"].estimate
    assert numpy is not None
    assert (numpy.d, numpy.opponent, numpy.rounds) == (pytest.approx(-0.25), "start", judges.BASELINE_ROUNDS)
    assert found["wrong"].detail.startswith("wrong result: case main: out[")
    assert "'j' undeclared" in found["broken"].detail
    direct = stand.judge.compare(START, "baseline plain", 4, True)
    assert (direct.n, direct.against, direct.final) == (1, "baseline plain", True)
    assert direct.estimate.rounds == 4
    assert [c.case for c in direct.cases] == ["main"]
    assert stand.clock.arms[-1][1].artifact == stand.judge.arms.built["baseline-plain"].path.as_posix()


def test_a_champion_after_a_resume_is_built_and_checked_first(make: Make) -> None:
    stand = make().begun()
    champion = tasks.candidate(tasks.looping(2), 5)
    stand.clock.answer = lambda i: -0.5
    found = stand.evaluate(tasks.RIGHT, champion)
    assert found.kept
    assert found.gain is not None
    assert found.gain.opponent == "experiment 5"
    assert rungs(found) == [("guard", True), ("build", True), ("correct", True), ("time", True)]
    assert stand.clock.arms[0][1].artifact == stand.judge.arms.spec(champion).artifact
    direct = stand.judge.compare(champion, "start", 2, False)
    assert (direct.n, direct.against, direct.final) == (5, "start", False)


def test_a_champion_that_fails_now_is_the_machines_matter(make: Make) -> None:
    stand = make().begun()
    wrong = tasks.candidate(kernel("    out[0] = x[0];"), 5)
    with pytest.raises(MachineError, match="the champion, kept before, now fails: case main"):
        stand.evaluate(tasks.RIGHT, wrong)
    with pytest.raises(MachineError, match="the champion, kept before, now fails"):
        stand.judge.compare(wrong, "start", 2, True)


def test_a_machine_that_is_not_fit_is_void(make: Make) -> None:
    stand = make().begun()
    stand.clock.answer = lambda i: Disturbed("another process took the core")
    found = stand.evaluate(tasks.RIGHT)
    assert (found.kind, found.reason) == (Kind.VOID, Reason.MACHINE)
    assert "another process took the core" in found.detail
    assert rungs(found)[-1] == ("time", False)


def test_every_so_often_the_noise_is_looked_at_again(make: Make) -> None:
    stand = make().begun()
    stand.judge.watch.evaluations = EVERY - 1
    stand.clock.answer = lambda i: 0.05 * (-1) ** i
    stand.evaluate(tasks.RIGHT)
    assert stand.judge.calibration is not None
    assert stand.judge.calibration.sigma > 0.04
    assert any("noisier" in e.text for e in stand.told)
    noisy = stand.judge.calibration.sigma
    stand.judge.watch.evaluations = EVERY - 1
    stand.clock.answer = lambda i: 0.0
    stand.evaluate(tasks.RIGHT + "/* again */\n")
    assert stand.judge.calibration.sigma < noisy  # calm again: back to what was measured first


def test_lint_gives_the_mutation_score(make: Make) -> None:
    assert make().judge.lint().score.endswith("mutants killed in 2 cases")
