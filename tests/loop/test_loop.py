"""The loop with a recorded judge: what is kept, what ends it, what it measures, what it hears from outside."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast import crash, lifecycle, loop, model
from keepfast.errors import LedgerError, MachineError, TaskError, UsageError
from keepfast.ledger import Ledger
from keepfast.repo import Repo
from keepfast.testing import FakeClock, RecordedJudge, ScriptedProposer, keep, reject, revert, started, void
from tests.loop import kit


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return kit.repository(tmp_path)


@pytest.fixture
def ledger(where: Path) -> Iterator[Ledger]:
    with Ledger.open(Repo.find(where).ensure_state()) as opened:
        yield opened


def values(count: int) -> tuple[model.Proposal, ...]:
    return kit.proposals(*(kit.kernel(i + 1) for i in range(count)))


def go(where: Path, ledger: Ledger, verdicts: list[model.Verdict], **more: object) -> model.End:
    judge = more.pop("judge", None) or RecordedJudge(verdicts)
    script = more.pop("script", None) or values(len(verdicts))
    return loop.run(kit.session(where, ledger, script, judge, **more))  # type: ignore[arg-type]


def users(folder: Path) -> tuple[object, ...]:
    """What is the user's in a repository."""
    return kit.git(folder, "status", "--porcelain"), kit.git(folder, "rev-parse", "HEAD", "main"), (folder / ".git/index").read_bytes()


def kinds(ledger: Ledger) -> list[str]:
    run = ledger.latest()
    assert run is not None
    return [e.verdict.reason.value for e in ledger.experiments(run.id)]


# --------------------------------------------------------------------------------------------- keeping and reverting


def test_only_keeps_move_the_branch(where: Path, ledger: Ledger, tmp_path: Path) -> None:
    end = go(where, ledger, [keep(1.5), revert(0.9), reject(), keep(1.2)])
    assert (end.state, end.champion.n, end.keeps) == ("deck-done", 5, 2)
    assert dict(end.counts) == {"keep": 2, "revert": 1, "reject": 1, "suspect": 0, "void": 0}
    subjects = kit.git(tmp_path, "log", "--format=%s", end.branch).split("\n")
    assert subjects[:3] == ["change 3", "change 0", "start"]
    assert kit.git(tmp_path, "show", f"{end.branch}:tasks/soft max é/kernel/kernel.c") == kit.START.replace("0", "4")
    assert [e.parent for e in ledger.experiments(end.run.id)] == [0, 1, 2, 2, 2]


def test_the_checkout_is_never_touched(where: Path, ledger: Ledger, tmp_path: Path) -> None:
    (where / "kernel" / "kernel.c").write_text(kit.START + "/* an edit of mine */\n")
    (tmp_path / "other.txt").write_text("not the task's\n")
    kit.git(tmp_path, "add", "README")
    before = users(tmp_path)
    end = go(where, ledger, [keep(1.5)])
    assert users(tmp_path) == before
    assert "an edit of mine" in kit.git(tmp_path, "show", f"{end.run.base}:tasks/soft max é/kernel/kernel.c")
    assert "other.txt" not in kit.git(tmp_path, "ls-tree", "-r", "--name-only", end.branch)


def test_known_files_and_no_change_need_no_judge(where: Path, ledger: Ledger) -> None:
    judge = RecordedJudge([keep(1.1), revert(), revert(), revert()])
    script = kit.proposals(kit.kernel(1), kit.kernel(2), kit.kernel(2), kit.kernel(1))
    go(where, ledger, [], judge=judge, script=script)
    assert kinds(ledger) == ["start", "faster", "slower", "seen", "no-change"]
    assert [a.n for a in judge.asked if a.verb == "evaluate"] == [2, 3]
    fourth = ledger.experiment(ledger.runs()[0].id, 4)
    assert fourth.verdict.detail == "experiment 3: slower in the screening round"


def test_a_patch_that_does_not_apply_is_kept_as_an_artifact(where: Path, ledger: Ledger) -> None:
    end = go(where, ledger, [], judge=RecordedJudge([]), script=kit.proposals(kit.patch(5, 6)))
    experiment = ledger.experiment(end.run.id, 2)
    assert experiment.verdict.reason is model.Reason.DOES_NOT_APPLY
    (fact,) = experiment.verdict.rungs[0].facts
    assert b"+    return 6;" in ledger.artifact(fact.value)


def test_what_may_not_be_touched_reaches_the_judge(where: Path, ledger: Ledger) -> None:
    seen: list[tuple[str, ...]] = []

    def verdict(candidate: model.Candidate, against: model.Candidate) -> model.Verdict:
        seen.append(tuple(f.path for f in candidate.files))
        return reject(model.Reason.GUARD, "not editable")

    outside = model.Patch("--- a/task.toml\n+++ b/task.toml\n@@ -1 +1 @@\n-schema = 1\n+schema = 2\n")
    script = kit.proposals(outside, model.Files((("../../README", b"yours\n"),)), model.Files((("task.toml", None),)))
    go(where, ledger, [], judge=RecordedJudge(verdict, logs=lambda c: 0.0), script=script)
    assert kinds(ledger) == ["start", "guard", "guard", "guard"]
    assert seen == [("kernel/kernel.c", "task.toml"), ("../../README", "kernel/kernel.c")]


def test_a_candidate_too_large_is_judged_but_not_stored(where: Path, ledger: Ledger, tmp_path: Path) -> None:
    big = model.Files((("kernel/table.h", b"0," * (loop.STORED // 2 + 1)),))
    end = go(where, ledger, [reject(model.Reason.TOO_BIG, "16.8 MB of source")], script=kit.proposals(big))
    assert ledger.experiment(end.run.id, 2).commit == ""
    assert kinds(ledger) == ["start", "too-big"]


# --------------------------------------------------------------------------------------------- void


def test_void_is_run_again_and_costs_nothing(where: Path, ledger: Ledger) -> None:
    answers = [void(), void(), keep(1.2), revert()]
    clock = FakeClock()
    judge = RecordedJudge(lambda c, a: answers.pop(0), logs=lambda c: -0.18)
    end = go(where, ledger, [], judge=judge, script=values(2), clock=clock)
    assert kinds(ledger) == ["start", "faster", "slower"]
    assert sum(clock.slept) == pytest.approx(sum(loop.VOID_WAITS[:2]))
    assert end.keeps == 1


def test_void_to_the_end_is_said_and_proposed_again(where: Path, ledger: Ledger) -> None:
    budget = model.Budget(experiments=3)
    judge = RecordedJudge(lambda c, a: void() if c.n == 2 else revert(), logs=lambda c: 0.0)
    end = go(where, ledger, [], judge=judge, script=values(5), task_=kit.task(where, budget=budget))
    assert kinds(ledger) == ["start", "machine", "slower", "slower"]  # three that count: the void one did not
    assert [e.source for e in ledger.experiments(end.run.id)][1:3] == ["script/0", "script/0"]
    assert end.state == "budget"


def test_a_machine_that_is_never_fit_ends_the_run(where: Path, ledger: Ledger) -> None:
    with pytest.raises(MachineError, match="not fit to judge 5 experiments in a row: a noisy neighbour"):
        go(where, ledger, [], judge=RecordedJudge(lambda c, a: void("a noisy neighbour"), logs=lambda c: 0.0), script=values(9))
    assert ledger.runs()[0].state == "interrupted"


def test_a_machine_error_of_the_judge_is_void(where: Path, ledger: Ledger) -> None:
    errors = [MachineError("the compiler is gone"), MachineError("steal time")]

    class Judge(RecordedJudge):
        def evaluate(self, candidate: model.Candidate, against: model.Candidate, standing: object, **how: bool) -> model.Verdict:
            if errors:
                raise errors.pop()
            return super().evaluate(candidate, against, standing, **how)  # type: ignore[arg-type]

    assert go(where, ledger, [], judge=Judge([keep(1.1)]), script=values(1)).keeps == 1
    assert kinds(ledger) == ["start", "faster"]


@pytest.mark.parametrize(("failures", "state"), [(3, "deck-done"), (4, "interrupted")])
def test_a_champion_that_cannot_be_measured_is_not_built_upon(where: Path, ledger: Ledger, failures: int, state: str) -> None:
    errors = [MachineError("the champion, kept before, now fails")] * failures

    class Judge(RecordedJudge):
        def compare(self, champion: model.Candidate, opponent: str, rounds: int, final: bool) -> model.Direct:
            if errors:
                raise errors.pop()
            return super().compare(champion, opponent, rounds, final)

    verdicts = [keep(1.1)] * 6
    if state == "interrupted":
        with pytest.raises(MachineError, match="now fails"):
            go(where, ledger, [], judge=Judge(verdicts), script=values(6))
    else:
        go(where, ledger, [], judge=Judge(verdicts), script=values(6))
    assert ledger.runs()[0].state == state
    assert len(kinds(ledger)) == (6 if state == "interrupted" else 7)


def test_ctrl_c_ends_the_waiting(where: Path, ledger: Ledger) -> None:
    class Clock(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.slept) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    clock = Clock()
    judge = RecordedJudge(lambda c, a: void(), logs=lambda c: 0.0)
    end = go(where, ledger, [], judge=judge, script=values(1), clock=clock)
    assert (end.state, kinds(ledger), len(clock.slept)) == ("stopped", ["start", "machine"], 2)


# --------------------------------------------------------------------------------------------- what ends a run


@pytest.mark.parametrize(
    ("budget", "verdicts", "why"),
    [
        (model.Budget(experiments=3), [revert(), revert(), revert()], "budget: 3 of 3 experiments"),
        (model.Budget(dry=2), [keep(1.1), revert(), revert(), revert()], "budget: 2 experiments in a row without a keep"),
        (model.Budget(hours=0.5), [revert(), revert(), revert()], "budget: 0.56 of 0.5 hours"),
    ],
)
def test_budgets(where: Path, ledger: Ledger, budget: model.Budget, verdicts: list[model.Verdict], why: str) -> None:
    clock = FakeClock()
    judge = RecordedJudge(lambda c, a: clock.sleep(1000) or verdicts[c.n - 2], logs=lambda c: -0.1)  # type: ignore[func-returns-value]
    end = go(where, ledger, [], judge=judge, script=values(9), task_=kit.task(where, budget=budget), clock=clock)
    assert (end.state, end.why) == ("budget", why)


def test_when_a_budget_ends_the_champion_is_measured_again(where: Path, ledger: Ledger) -> None:
    judge = RecordedJudge([keep(1.5)], baselines={"numpy": -0.2, "broken": None})
    end = go(where, ledger, [], judge=judge, script=values(1))
    assert [(d.against, d.final) for d in end.directs] == [("start", True), ("baseline numpy", True)]
    assert end.directs[0].estimate.speedup == pytest.approx(1.5)
    assert end.directs[1].estimate.speedup == pytest.approx(1.5 * math.exp(-0.2))


def test_nothing_kept_nothing_measured(where: Path, ledger: Ledger) -> None:
    end = go(where, ledger, [revert()])
    assert (end.directs, end.keeps, end.branch, end.champion.n) == ((), 0, "", 1)


def test_directs_every_five_keeps(where: Path, ledger: Ledger) -> None:
    judge = RecordedJudge([keep(1.01)] * 11)
    go(where, ledger, [], judge=judge, script=values(11))
    assert [(a.n, a.final) for a in judge.asked if a.verb == "compare"] == [(6, False), (11, False), (12, True)]


def test_the_goal_is_met_by_the_bound_of_a_direct_measurement(where: Path, ledger: Ledger) -> None:
    goal = model.Goal(speedup=2.0, over="start")
    logs = {3: -math.log(1.99), 4: -math.log(2.05)}
    judge = RecordedJudge([keep(1.5), keep(1.4), keep(1.05), keep(1.5)], logs=lambda c: logs[c.n])
    end = go(where, ledger, [], judge=judge, script=values(4), task_=kit.task(where, goal=goal))
    # Experiment 3 would be 2.1x by the sum of its gains; measured, it is not. Experiment 5 is never proposed.
    assert [a.n for a in judge.asked if a.verb == "compare"] == [3, 4]
    assert (end.state, end.champion.n) == ("goal", 4)
    assert end.why.startswith("goal met: 2.05x over start [2.0")


def test_a_goal_over_baselines_is_over_every_one_that_may_be_the_fastest(where: Path, ledger: Ledger) -> None:
    goal = model.Goal(speedup=1.2, over="baseline")
    baselines = {"numpy": -0.300, "blas": -0.302, "slow": 0.1, "broken": None}
    judge = RecordedJudge([keep(1.4), keep(1.3)], baselines=baselines)
    end = go(where, ledger, [], judge=judge, script=values(2), task_=kit.task(where, goal=goal))
    compared = [(a.n, a.opponent) for a in judge.asked if a.verb == "compare"]
    assert compared == [(3, "start"), (3, "baseline blas"), (3, "baseline numpy")]
    assert end.state == "goal"
    assert "over baseline blas" in end.why


def test_the_end_can_prove_the_goal(where: Path, ledger: Ledger) -> None:
    judge = RecordedJudge([keep(1.9)], logs=lambda c: -math.log(2.1))  # better than its own gain said
    end = go(where, ledger, [], judge=judge, script=values(1), task_=kit.task(where, goal=model.Goal(speedup=2.0, over="start")))
    assert end.state == "goal"


def test_limit_as_a_goal(where: Path, ledger: Ledger) -> None:
    kept = keep(1.5)
    near = replace(kept, cases=tuple(replace(c, limit_ns=0.95 * c.subject_ns) for c in kept.cases))

    class Judge(RecordedJudge):
        def compare(self, champion: model.Candidate, opponent: str, rounds: int, final: bool) -> model.Direct:
            made = super().compare(champion, opponent, rounds, final)
            return replace(made, cases=tuple(replace(c, limit_ns=0.95 * c.subject_ns) for c in made.cases))

    end = go(where, ledger, [], judge=Judge([near, keep(1.1)]), script=values(2), task_=kit.task(where, goal=model.Goal(limit=0.9)))
    assert (end.state, end.champion.n) == ("goal", 2)
    assert end.why == "goal met: 95 % of the physical limit, at least; the goal was 90 %"


# --------------------------------------------------------------------------------------------- standing


def test_standing_adds_up_and_is_set_anew_by_direct_measurements(where: Path, ledger: Ledger) -> None:
    judge = RecordedJudge([keep(1.01)] * 5 + [revert(), keep(1.01), revert()], logs=lambda c: -0.2)
    go(where, ledger, [], judge=judge, script=values(8))
    standing = {a.n: a.standing[0] for a in judge.asked if a.verb == "evaluate"}
    assert standing[2].total == 0.0
    assert standing[6].total == pytest.approx(-4 * math.log(1.01))
    assert standing[6].variance == pytest.approx(4 * 0.006**2 / 6)
    assert (standing[7].total, standing[7].best) == (pytest.approx(-0.2), pytest.approx(-0.2))  # measured at experiment 6
    assert standing[9].total == pytest.approx(-0.2 - math.log(1.01))


# --------------------------------------------------------------------------------------------- from outside


def at(n: int, act: Callable[[], None], verdicts: list[model.Verdict]) -> RecordedJudge:
    """A judge during whose work on experiment `n` something happens."""

    def verdict(candidate: model.Candidate, against: model.Candidate) -> model.Verdict:
        if candidate.n == n:
            act()
        return verdicts[candidate.n - 2]

    return RecordedJudge(verdict, logs=lambda c: -0.1 * c.n)


def test_stop_from_another_terminal(where: Path, ledger: Ledger) -> None:
    judge = at(3, lambda: ledger.post("stop"), [keep(1.1), revert(), revert()])
    end = go(where, ledger, [], judge=judge, script=values(3))
    assert (end.state, len(kinds(ledger))) == ("stopped", 3)
    assert [d.final for d in end.directs] == [True]  # missing, so measured


def test_a_stop_from_before_is_not_for_this_run(where: Path, ledger: Ledger) -> None:
    ledger.post("stop")
    assert go(where, ledger, [revert()], clock=FakeClock(now=4e9)).state == "deck-done"


def test_budget_is_raised_and_stays_raised(where: Path, ledger: Ledger) -> None:
    task = kit.task(where, budget=model.Budget(experiments=3))
    judge = at(2, lambda: ledger.post("budget", "experiments=4"), [revert()] * 9)
    assert go(where, ledger, [], judge=judge, script=values(9), task_=task).why == "budget: 4 of 4 experiments"
    ledger.post("budget", "experiments=6")
    end = go(where, ledger, [revert()] * 9, task_=task)
    assert (end.why, len(kinds(ledger))) == ("budget: 6 of 6 experiments", 6)


def test_commands_nobody_understands_are_said_and_ignored(where: Path, ledger: Ledger) -> None:
    notes: list[str] = []

    def heard(event: model.Event) -> None:
        notes.extend([event.text] if event.kind == "note" else [])

    def post() -> None:
        for line in ("budget experiments=-1", "budget beer=6", "dance ", "clear 2 it is fine", "clear x"):
            ledger.post(*line.split(" ", 1))

    end = go(where, ledger, [], judge=at(2, post, [revert(), revert()]), script=values(2), on_event=heard)
    assert end.state == "deck-done"
    assert len(notes) == 5
    assert all("ignored" in n for n in notes)


def test_an_idea_arrives(where: Path, ledger: Ledger) -> None:
    go(where, ledger, [], judge=at(2, lambda: ledger.post("idea", "use AVX"), [revert(), revert()]), script=values(2))
    assert [i.text for i in ledger.ideas("soft max é")] == ["use AVX"]


def test_a_suspect_is_cleared_during_the_run(where: Path, ledger: Ledger) -> None:
    suspect = replace(keep(1.3), kind=model.Kind.SUSPECT, reason=model.Reason.TOO_FAST)
    judge = at(3, lambda: ledger.post("clear", "2 the limit was wrong"), [suspect, revert(), revert(), revert()])
    end = go(where, ledger, [], judge=judge, script=values(3))
    assert kinds(ledger) == ["start", "too-fast", "slower", "cleared", "slower"]
    assert end.champion.n == 4
    assert ledger.experiment(end.run.id, 5).parent == 4
    assert ledger.experiment(end.run.id, 4).verdict.detail == "the limit was wrong"


# --------------------------------------------------------------------------------------------- Ctrl-C


def test_ctrl_c_once_finishes_the_experiment(where: Path, ledger: Ledger) -> None:
    before = signal.getsignal(signal.SIGINT)
    judge = at(3, lambda: os.kill(os.getpid(), signal.SIGINT), [keep(1.1), keep(1.1), revert()])
    end = go(where, ledger, [], judge=judge, script=values(3))
    assert (end.state, kinds(ledger)) == ("stopped", ["start", "faster", "faster"])
    assert signal.getsignal(signal.SIGINT) is before
    assert go(where, ledger, [keep(1.1), keep(1.1), revert()]).state == "deck-done"
    assert kinds(ledger) == ["start", "faster", "faster", "slower"]


def test_ctrl_c_twice_stops_at_once(where: Path, ledger: Ledger) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    end = go(where, ledger, [], judge=at(3, twice, [keep(1.1), keep(1.1)]), script=values(2))
    assert (end.state, kinds(ledger)) == ("interrupted", ["start", "faster"])
    assert ledger.holder() is None
    assert go(where, ledger, [keep(1.1), keep(1.1)]).keeps == 2


# --------------------------------------------------------------------------------------------- beginning, resuming


def test_a_start_that_fails_leaves_nothing_behind(where: Path, ledger: Ledger, tmp_path: Path) -> None:
    class Judge(RecordedJudge):
        def begin(self, start: model.Candidate, calibration: model.Calibration | None) -> model.Begin:
            return model.Begin(reject(model.Reason.WRONG, "row 3"), None)

    with pytest.raises(TaskError, match="wrong result: row 3"):
        go(where, ledger, [], judge=Judge([]), script=values(1))
    assert ledger.runs() == ()
    assert kit.git(tmp_path, "for-each-ref", "refs/keepfast", "refs/heads/keepfast") == ""


def test_a_goal_over_baselines_needs_one_that_passes(where: Path, ledger: Ledger) -> None:
    task = kit.task(where, goal=model.Goal(speedup=2.0, over="baseline"))
    with pytest.raises(TaskError, match=r"none passes \(numpy: wrong result\)"):
        go(where, ledger, [], judge=RecordedJudge([], baselines={"numpy": None}), script=values(1), task_=task)


def test_calibration_is_kept_for_the_next_run(where: Path, ledger: Ledger) -> None:
    go(where, ledger, [revert()])
    assert ledger.calibration("recorded", "task") is not None  # stored under the machine it names


def test_a_finished_run_resumed_changes_nothing(where: Path, ledger: Ledger, tmp_path: Path) -> None:
    verdicts = [keep(1.2), revert()]
    first = go(where, ledger, verdicts)
    refs = kit.git(tmp_path, "for-each-ref")
    again = go(where, ledger, verdicts)
    assert (again.state, again.champion, again.directs) == (first.state, first.champion, first.directs)
    assert kit.git(tmp_path, "for-each-ref") == refs


def test_resume_wants_the_same_task_and_machine(where: Path, ledger: Ledger) -> None:
    go(where, ledger, [revert()])
    with pytest.raises(UsageError, match="task has changed"):
        lifecycle.resumable(kit.task(where, hash="other"), ledger, kit.MACHINE)
    with pytest.raises(UsageError, match=r"another machine.*cpu: a cpu, now faster"):
        lifecycle.resumable(kit.task(where), ledger, replace(kit.MACHINE, cpu="faster", hash="m2"))
    with pytest.raises(UsageError, match="no run of sum to resume"):
        lifecycle.resumable(kit.task(where, name="sum"), ledger, kit.MACHINE)


def test_a_branch_that_was_lost_or_moved_is_healed(where: Path, ledger: Ledger, tmp_path: Path) -> None:
    end = go(where, ledger, [keep(1.2), keep(1.2)])
    tip = kit.git(tmp_path, "rev-parse", end.branch)
    kit.git(tmp_path, "update-ref", f"refs/heads/{end.branch}", end.run.base)
    (tmp_path / ".git/refs/heads" / f"{end.branch}.lock").write_text("")
    (tmp_path / ".git/refs/keepfast" / end.run.id / "2.lock").write_text("")
    (tmp_path / ".git/refs/keepfast" / end.run.id / "99").write_text("0123456789012345678901234567890123456789\n")  # power cut
    go(where, ledger, [keep(1.2), keep(1.2)])
    assert kit.git(tmp_path, "rev-parse", end.branch) == tip
    assert kit.git(tmp_path, "fsck", "--strict") == ""


def test_a_branch_that_is_checked_out_is_left_alone(where: Path, ledger: Ledger, tmp_path: Path) -> None:
    end = go(where, ledger, [keep(1.2), keep(1.2)], script=values(1))
    kit.git(tmp_path, "checkout", "-q", end.branch)
    tip, notes = kit.git(tmp_path, "rev-parse", "HEAD"), list[str]()
    again = go(where, ledger, [keep(1.2), keep(1.2)], on_event=lambda e: notes.append(e.text))
    assert again.keeps == 2
    assert kit.git(tmp_path, "rev-parse", "HEAD") == tip
    assert kit.git(tmp_path, "status", "--short") == ""
    assert any("is checked out" in n for n in notes)


def test_a_second_run_on_the_same_ledger(where: Path, ledger: Ledger) -> None:
    session = kit.session(where, ledger, values(1), RecordedJudge([revert()]))
    with ledger.hold("other-1"), pytest.raises(UsageError, match=rf"another run holds this ledger \(pid {os.getpid()}, started "):
        loop.run(session)
    assert ledger.runs() == ()


def test_the_judge_is_asked_with_the_champion_and_history(where: Path, ledger: Ledger) -> None:
    briefs = []

    class Proposer(ScriptedProposer):
        def propose(self, brief: object) -> model.Proposal | None:
            briefs.append(brief)
            return super().propose(brief)  # type: ignore[arg-type]

    session = kit.session(where, ledger, (), RecordedJudge([keep(1.1), revert()]))
    loop.run(replace(session, proposer=Proposer(values(2))))
    assert [b.champion.n for b in briefs] == [1, 2, 2]
    assert [len(b.history) for b in briefs] == [1, 2, 3]
    assert all(not e.verdict.rounds for b in briefs for e in b.history)
    assert briefs[1].budget_left == "198 of 200 experiments"
    assert briefs[1].history == ledger.experiments(session.run.id)[:2]


def test_an_error_of_ours_leaves_a_run_that_can_be_resumed(where: Path, ledger: Ledger) -> None:
    def fail() -> None:
        raise TaskError("the reference has changed")

    with pytest.raises(TaskError):
        go(where, ledger, [], judge=at(3, fail, [keep(1.1)]), script=values(2))
    assert ledger.runs()[0].state == "interrupted"
    assert go(where, ledger, [keep(1.1), revert()]).state == "deck-done"


def test_events_are_told_here_and_stored_for_others(where: Path, ledger: Ledger) -> None:
    told: list[model.Event] = []
    end = go(where, ledger, [keep(1.5)], on_event=told.append)
    stored = [s.event for s in ledger.events(end.run.id)]
    assert [(e.kind, e.n) for e in told] == [(e.kind, e.n) for e in stored]
    assert [e.kind for e in stored] == ["verdict", "run", "propose", "verdict", "direct", "end"]
    assert stored[3].experiment is not None
    assert stored[3].experiment.verdict.gain == keep(1.5).gain


def test_disk_full_is_said_and_nothing_is_lost(where: Path, ledger: Ledger) -> None:
    def fill() -> None:
        pages = ledger._store.one("PRAGMA page_count")[0]
        ledger._store.one(f"PRAGMA max_page_count = {pages}")

    verdicts = [keep(1.1), keep(1.1), keep(1.1), keep(1.1)]
    with pytest.raises(LedgerError, match="disk is full"):
        go(where, ledger, [], judge=at(3, fill, verdicts), script=values(4))
    kept = kinds(ledger)
    assert kept[:2] == ["start", "faster"]
    ledger._store.one("PRAGMA max_page_count = 1000000")
    assert go(where, ledger, verdicts).keeps == 4
    assert kinds(ledger) == ["start", *["faster"] * 4]


def test_unknown_crash_point() -> None:
    with pytest.raises(ValueError, match="no-such is not a crash point"):
        crash.point("no-such")


def test_started_is_what_it_says() -> None:
    assert started().kept
