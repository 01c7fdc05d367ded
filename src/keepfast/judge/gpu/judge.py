"""The GPU judge: guard, build, plan, correct, time. The same ladder as on the CPU, over captured launch plans.

Owns the order of the rungs and what is remembered between evaluations (artifacts, times, calibration). Must not know git, the
ledger or proposers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.gpu.messages import KernelFacts
from keepfast.judge import decide, guard
from keepfast.judge.builder import Site
from keepfast.judge.endings import MAX_DETAIL, Failure
from keepfast.judge.gpu import recompiled, watched
from keepfast.judge.gpu.allowed import Allowed
from keepfast.judge.gpu.arms import Arm, Arms, Artifact
from keepfast.judge.gpu.asking import Oracle
from keepfast.judge.gpu.check import Checker, Correct
from keepfast.judge.gpu.contest import Contest
from keepfast.judge.gpu.launchers import Launchers
from keepfast.judge.gpu.noise import Noise
from keepfast.judge.gpu.rounds import Duel, Rounds, Timing
from keepfast.judge.gpu.shelf import Shelf
from keepfast.judge.gpu.stages import Stage, limit_ns
from keepfast.judge.gpu.workers import Captured, Pool, differs
from keepfast.judge.ladder import Ladder, Outcome, Question, direct, until_decided
from keepfast.judge.lint import Mutant as Found
from keepfast.judge.lint import Report
from keepfast.judge.watch import Watch
from keepfast.model import (
    SENTENCES,
    BaselineResult,
    Begin,
    Calibration,
    Candidate,
    CaseStanding,
    CaseTime,
    Direct,
    Event,
    Fact,
    Machine,
    Phase,
    Reason,
    Round,
    Task,
    Verdict,
    percent,
)
from keepfast.stats import estimate
from keepfast.walls.base import Walls

BASELINE_ROUNDS = 3


class Card(Protocol):
    """The GPU as the judge sees it."""

    @property
    def memory(self) -> int:
        """Bytes."""

    @property
    def uuid(self) -> str: ...

    @property
    def arch(self) -> str:
        """As in "sm_90"."""

    def fit(self) -> None:
        """Wait, within a bound, until nothing else computes on it; MachineError that says who does."""

    def unfit(self) -> str:
        """Why what was measured since `fit` or the last call does not count, or ""."""


class GpuBench(Struct, frozen=True):
    """What a GPU judge works with; made once a run."""

    task: Task
    walls: Walls
    machine: Machine
    card: Card
    pool: Pool
    launchers: Launchers
    oracle: Oracle
    builds: Path
    known_code: Callable[[str], int | None]
    emit: Callable[[Event], None]
    rng: Random


class Checked(Struct, frozen=True):
    """A subject that passed the check."""

    artifact: Artifact
    correct: Correct


Asked = tuple[Candidate, tuple[CaseStanding, ...], decide.Rule]  # against whom, with which losses so far, how far


class GpuJudge:
    """`loop.Judge` for kernels on one NVIDIA GPU."""

    def __init__(self, bench: GpuBench) -> None:
        self.bench, self.task, self.oracle = bench, bench.task, bench.oracle
        self.shelf = Shelf(bench.task, bench.oracle, bench.machine, bench.card.memory, bench.rng)
        site = Site(bench.walls, bench.card.arch)
        self.arms = Arms(bench.task, site, bench.builds, bench.pool)
        self.allowed = Allowed(bench.task, self.arms, recompiled.Recompiler(site))
        self.checker = Checker(bench.launchers, bench.oracle, bench.rng)
        self.rounds = Rounds(bench.task, bench.launchers, bench.oracle, bench.rng)
        self.rounds.unfit, self.rounds.told = bench.card.unfit, self._progress
        self.rounds.card = bench.card.uuid
        self.noise = Noise(self.arms, bench.machine.hash, bench.emit, self._measure)
        self.calibration: Calibration | None = None
        self.quiet: Calibration | None = None
        self.start: Candidate | None = None
        self.expected: dict[str, dict[str, float]] = {}  # tree or baseline -> case -> ns of a call
        self.profiled: dict[str, tuple[KernelFacts, ...]] = {}  # the same -> its kernels, with shares of GPU time
        self.watch = Watch()

    # ------------------------------------------------------------------------------------------ the verbs

    def begin(self, start: Candidate, calibration: Calibration | None) -> Begin:
        """Judge the start, measure this machine's noise on it, try the baselines."""
        verdict = self.ready(start, calibration)
        if not verdict.kept:
            return Begin(verdict, None)
        found = self.calibrated()
        self.bench.emit(Event("calibrate", f"gains above {100 * found.margin:.1f} % count", calibration=found))
        return Begin(replace(verdict, mde=decide.mde(found)), found, tuple(self._baseline(b.name, start) for b in self.task.baselines))

    def ready(self, start: Candidate, calibration: Calibration | None) -> Verdict:
        """Judge the start, without measuring noise or baselines."""
        self.start, self.calibration, self.quiet = start, calibration, calibration
        self.arms.lasting = {start.tree}
        ladder = self._ladder()
        checked = self._check(ladder, start, start)
        return checked if isinstance(checked, Verdict) else ladder.end(Reason.START, "", code=checked.artifact.code)

    def calibrated(self) -> Calibration:
        """The calibration, measured on the start when there is none yet."""
        if self.calibration is None:
            checked = self._again(self._start())
            self.calibration = self.quiet = self.noise.run(checked.artifact, self._against_itself(checked))
        return self.calibration

    def lint(self) -> Report:
        """Raises TaskError when the task cannot be judged; the mutation score otherwise."""
        found = self.oracle.mutate()
        names = dict.fromkeys(m.name for m in found.mutants)
        killed = {m.name: m.case for m in reversed(found.mutants) if m.killed}
        report = Report(tuple(Found(name, killed.get(name, "")) for name in names), len({m.case for m in found.mutants}))
        report.refuse(self.task)
        return report

    def evaluate(self, candidate: Candidate, against: Candidate, standing: tuple[CaseStanding, ...], *, only_try: bool = False) -> Verdict:
        with self.bench.pool.held():
            return self._evaluated(candidate, against, standing, decide.TRY if only_try else decide.RULE)

    def _evaluated(self, candidate: Candidate, against: Candidate, standing: tuple[CaseStanding, ...], rule: decide.Rule) -> Verdict:
        if self.shelf.generation:  # the champion was captured with what its host code could read before that confirm
            self._draw()
        champion = self._known(against)
        ladder = self._ladder()
        checked = self._check(ladder, candidate, against)
        if isinstance(checked, Verdict):
            return checked
        code = checked.artifact.code
        try:
            outcome = self._tried(checked, champion, (against, standing, rule))
        except MachineError as error:
            ladder.rung("time", False)
            return ladder.end(Reason.MACHINE, error.what)
        self.watch.saw(against.tree, outcome.rounds)
        ladder.rung("time", outcome.kept, self.allowed.origins.pop(candidate.tree, ()))
        return ladder.timed(outcome, code)

    def compare(self, champion: Candidate, opponent: str, rounds: int, final: bool) -> Direct:
        """Measure the champion against "start" or "baseline NAME" in fresh rounds."""
        calibration = self.calibrated()  # first: it draws contents of its own
        checked = self._again(champion)
        arm = self.arms.of(self._start()) if opponent == "start" else self.arms.baseline(opponent.removeprefix("baseline "))
        other = self._artifact(arm)
        if isinstance(other, Failure):
            raise MachineError(f"{opponent} cannot be captured any more: {other.detail}")
        duel = self._duel(checked, other, opponent, self.expected.get(arm.key, checked.correct.ns))
        return direct(champion.n, opponent, self._measure(duel, Phase.DIRECT, rounds), calibration, final)

    def close(self) -> None:
        self.shelf.close()

    # ------------------------------------------------------------------------------------------ rungs

    def _ladder(self) -> Ladder:
        return Ladder(self.bench.walls.strength, self.bench.emit)

    def _check(self, ladder: Ladder, candidate: Candidate, champion: Candidate) -> Checked | Verdict:
        """Guard, build, plan and correct; code that was judged before ends it."""
        refused = guard.check(self.task, candidate, champion)
        ladder.rung("guard", not isinstance(refused, guard.Refused), () if isinstance(refused, guard.Refused) else refused)
        if isinstance(refused, guard.Refused):
            return ladder.end(refused.reason, refused.detail)
        self._stages()
        artifact = self.arms.build(self.arms.of(candidate))
        if isinstance(artifact, Failure):
            return ladder.fail("build", artifact)
        ladder.rung("build", True, (Fact("files", f"{len(artifact.tree.files)}"),))
        self._draw()
        return self._planned(ladder, artifact, candidate, champion)

    def _planned(self, ladder: Ladder, artifact: Artifact, candidate: Candidate, champion: Candidate) -> Checked | Verdict:
        captured = self._captured(artifact)
        if isinstance(captured, Failure):
            return ladder.fail("plan", captured)
        ladder.rung("plan", True, _plan_facts(captured))
        code = artifact.code
        if candidate is not champion and (known := self._seen(code, champion)) is not None:
            where = f"experiment {known}" if known else "the kernel before"
            return ladder.end(Reason.SAME_CODE, f"launches the same code as {where}", code=code)
        found = self.checker.check(captured, self._stages(), self.shelf.stock)
        if isinstance(found, Failure):
            return ladder.fail("correct", found, code)
        ladder.rung("correct", True, found.facts())
        return self._allowed(ladder, artifact, captured, found)

    def _allowed(self, ladder: Ladder, artifact: Artifact, captured: Captured, found: Correct) -> Checked | Verdict:
        """Is it in the language asked for, and within the rules?"""
        kernels = self.allowed.shares(artifact, found)
        ruled = self.allowed.ruled(artifact, captured, kernels)
        notes = [note for right in found.cases if (note := watched.said(right.case, right.watched))]
        if isinstance(ruled, Failure):
            ruled = replace(ruled, detail="; ".join((ruled.detail, *notes[:1]))[:MAX_DETAIL])
            return ladder.fail("rules", ruled, artifact.code)
        ladder.rung("rules", True, (*ruled, *(Fact("watched", note) for note in notes)))
        self.expected[artifact.arm.key], self.profiled[artifact.arm.key] = found.ns, kernels
        return Checked(artifact, found)

    def _named(self, artifact: Artifact, captured: Captured) -> Failure | None:
        """Is what bears the name of a Triton kernel Triton's? Asked late, of the capture that decides: it takes about a second."""
        return self.allowed.named(artifact, captured, self.profiled[artifact.arm.key], self.arms.made.get(self._start().tree))

    def _captured(self, artifact: Artifact) -> Captured | Failure:
        captured = self.arms.capture(artifact, 0)
        if isinstance(captured, Failure) or artifact.pinned or not captured.autotuned:
            return captured
        timed = [s for s in self._stages() if s.case.timed]
        failure = self.arms.pin(artifact, lambda a, c: self.checker.pace(c, timed, self.shelf.stock))
        return failure or self.arms.capture(artifact, 0)

    def _seen(self, code: str, champion: Candidate) -> int | None:
        made = self.arms.made.get(champion.tree)
        return champion.n if made is not None and made.code == code else self.bench.known_code(code)

    def _tried(self, checked: Checked, champion: Artifact, asked: Asked) -> Outcome:
        against, standing, rule = asked
        calibration = self._recheck(against, self.calibrated())
        self._quiet()
        name = f"experiment {against.n}" if against.n else "the champion"
        contest = Contest(
            self.rounds,
            self.bench.machine,
            lambda: self._duel(checked, champion, name, self.expected[against.tree]),
            lambda: self._renewed(checked.artifact, champion),
        )
        outcome = until_decided(Question(contest.cases, name, calibration, standing, rule), contest.measure, contest.impossible)
        if outcome.kept and (suspect := contest.interference()):
            outcome = replace(outcome, end=suspect)
        return replace(outcome, cases=tuple(self._limited(c) for c in outcome.cases))

    def _renewed(self, artifact: Artifact, champion: Artifact) -> Failure | None:
        """For confirm: new contents, and another capture of each arm."""
        if failure := self._fresh(artifact):
            return failure
        self.arms.kept(champion, 1)
        self._quiet()
        return None

    def _fresh(self, artifact: Artifact) -> Failure | None:
        """New contents, and another capture of the subject, which must launch the same as its first."""
        self._draw(confirm=True)
        again = self.arms.capture(artifact, 1)
        if isinstance(again, Failure):
            return again
        if self.shelf.generation:  # what the host reads may change what it launches, so this is another kernel to be checked
            found = self.checker.check(again, self._stages(), self.shelf.stock)
            if isinstance(found, Failure):
                return found
            kernels = self.allowed.shares(artifact, found)
            ruled, self.profiled[artifact.arm.key] = self.allowed.ruled(artifact, again, kernels), kernels
            return ruled if isinstance(ruled, Failure) else self._named(artifact, again)
        return differs(artifact.takes[0], again) or self._named(artifact, again)

    # ------------------------------------------------------------------------------------------ what timing needs

    def _stages(self) -> tuple[Stage, ...]:
        """What is known of the cases; the arms are told when it is first asked."""
        if not self.arms.stages:
            self.arms.stages, self.arms.dtypes = self.shelf.described(), self.shelf.dtypes()
            self.arms.samples = self.shelf.samples
        return self.arms.stages

    def _draw(self, *, confirm: bool = False) -> None:
        """New contents, and what captures run on from now on."""
        self.shelf.draw(confirm=confirm)
        self.arms.samples, self.arms.generation = self.shelf.samples, self.shelf.generation

    def _start(self) -> Candidate:
        if self.start is None:
            raise MachineError("the judge has not begun")
        return self.start

    def _known(self, champion: Candidate) -> Artifact:
        """The champion is built and its times are known, also after a resume."""
        if champion.tree not in self.expected:
            self._again(champion)
        return self._kept(champion)

    def _kept(self, candidate: Candidate) -> Artifact:
        found = self._artifact(self.arms.of(candidate))
        if isinstance(found, Failure):
            raise MachineError(f"a kernel that was kept cannot be captured any more: {found.detail}", next_step="keepfast doctor")
        return found

    def _artifact(self, arm: Arm) -> Artifact | Failure:
        found = self.arms.build(arm)
        if isinstance(found, Failure):
            return found
        captured = self._captured(found)
        return captured if isinstance(captured, Failure) else found

    def _again(self, champion: Candidate) -> Checked:
        checked = self._check(self._ladder(), champion, champion)
        if isinstance(checked, Verdict):
            raise MachineError(f"the champion, kept before, now fails: {checked.detail}", next_step="keepfast log; keepfast doctor")
        return checked

    def _duel(self, checked: Checked, opponent: Artifact, name: str, opponent_ns: dict[str, float]) -> Duel:
        made = tuple(self._timing(checked, stage, opponent_ns) for stage in self._stages())
        return Duel(
            lambda take: self.arms.kept(checked.artifact, take),
            lambda take: self.arms.kept(opponent, take),
            name,
            tuple(t for t in made if t.stage.case.timed),
            tuple(t for t in made if not t.stage.case.timed),
        )

    def _against_itself(self, checked: Checked) -> Duel:
        return self._duel(checked, checked.artifact, "itself", checked.correct.ns)

    def _timing(self, checked: Checked, stage: Stage, opponent_ns: dict[str, float]) -> Timing:
        right = checked.correct.of(stage.name)
        return Timing(stage, self.shelf.stock[stage.name], right.budgets, max(right.call_ns, opponent_ns.get(stage.name, 0.0)))

    def _measure(self, duel: Duel, phase: Phase, rounds: int) -> list[Round]:
        self._quiet()
        found = self.rounds.measure(duel, decide.Measure(phase, rounds))
        if isinstance(found, Failure):
            what = f"a kernel that passed before fails in {phase.value} rounds: {found.detail}"
            raise MachineError(what, next_step="keepfast log; keepfast doctor")
        return found

    def _quiet(self) -> None:
        """Nothing of ours starts up while something is timed, and nobody else computes on the card."""
        self.bench.pool.settle()
        self.bench.card.fit()

    def _limited(self, case: CaseTime) -> CaseTime:
        stage = next(s for s in self._stages() if s.name == case.case)
        return replace(case, limit_ns=limit_ns(stage, self.bench.machine))

    # ------------------------------------------------------------------------------------------ noise and opponents

    def _recheck(self, champion: Candidate, calibration: Calibration) -> Calibration:
        """Every so often, and when the champion's time drifts: is it still right, and this card still as quiet?"""
        if self.watch.due():
            checked = self._again(champion)
            self.calibration = self.noise.again(self.quiet or calibration, checked.artifact, self._against_itself(checked))
        return self.calibration or calibration

    def _baseline(self, name: str, start: Candidate) -> BaselineResult:
        """Check one baseline and measure it against the start."""
        self.bench.emit(Event("baseline", name))
        artifact = self._artifact(self.arms.baseline(name))
        if isinstance(artifact, Failure):
            return BaselineResult(name, False, f"{SENTENCES[artifact.reason][1]}: {artifact.detail}", None)
        found = self.checker.check(self.arms.kept(artifact, 0), self._stages(), self.shelf.stock)
        if isinstance(found, Failure):
            return BaselineResult(name, False, f"{SENTENCES[found.reason][1]}: {found.detail}", None)
        self.expected[artifact.arm.key] = found.ns
        duel = self._duel(Checked(artifact, found), self._kept(start), "start", self.expected[start.tree])
        rounds = self._measure(duel, Phase.DIRECT, BASELINE_ROUNDS)
        return BaselineResult(name, True, "", estimate([r.d for r in rounds], "start", self.calibrated().sigma))

    def _progress(self, phase: Phase, made: Round) -> None:
        self.bench.emit(Event("round", phase.value, numbers=(("gain", percent(made.d)), ("seconds", made.seconds))))


def _plan_facts(captured: Captured) -> tuple[Fact, ...]:
    sizes = [len(p.plan.of_call(0)) for p in captured.plans.values()]
    host = max(captured.host_us.values(), default=0.0)
    nodes = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    before = max((sum(node.call == 0 for node in p.plan.prepare) for p in captured.plans.values()), default=0)
    prepared = (Fact("prepare", f"{before} nodes a call, outside the clock"),) if before else ()
    facts = (Fact("nodes", f"{nodes} a call"), Fact("host code", f"{host:.0f} us a call"), Fact("capture", f"{captured.seconds:.1f} s"))
    return (*facts, *prepared)
