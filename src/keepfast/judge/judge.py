"""The CPU judge: guard, build, correct, time, one rung after the other, the first failure ends it.

Owns the order of the rungs and what is remembered between evaluations (builds, expected times, calibration). Must not
know git, the ledger or proposers. The candidate's failures come out as verdicts; a machine that cannot judge raises
`MachineError`, and a task that cannot be judged `TaskError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.judge import decide, guard, rules
from keepfast.judge.arms import Arms
from keepfast.judge.builder import Built
from keepfast.judge.calibrate import Calibrator
from keepfast.judge.channel import Failure, RunnerSpec
from keepfast.judge.clock import TINY_SETS, Clock, Timed, sets_for
from keepfast.judge.contents import Library
from keepfast.judge.correct import Checker, Correct
from keepfast.judge.ladder import Ladder, direct
from keepfast.judge.lint import Linter, Report
from keepfast.judge.oracle_records import Job
from keepfast.judge.reference import Reference
from keepfast.judge.sets import Draw
from keepfast.judge.trial import TINY_NS, Pair, Trial
from keepfast.judge.watch import Watch
from keepfast.model import (
    SENTENCES,
    BaselineResult,
    Begin,
    Calibration,
    Candidate,
    CaseStanding,
    Direct,
    Estimate,
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

SEEDS = 4  # draws a case in the check; they are also the bank that timed contents are mixed from
BASELINE_ROUNDS = 3


class Bench(Struct, frozen=True):
    """What a judge works with; made once a run by `run.py`."""

    task: Task
    walls: Walls
    machine: Machine
    library: Library
    builds: Path  # folder for artifacts
    known_code: Callable[[str], int | None]  # experiment that compiled to this code, if any
    emit: Callable[[Event], None]
    rng: Random


class Checked(Struct, frozen=True):
    """A subject that passed the check: its artifact, the draws it was checked on, what timing needs."""

    spec: RunnerSpec
    draws: tuple[tuple[Draw, ...], ...]
    correct: Correct


class CpuJudge:
    """`loop.Judge` for C kernels on this machine."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.task = bench, bench.task
        self.arms = Arms(bench.task, bench.walls, bench.builds)
        self.reference = Reference(bench.task)
        self.clock = Clock(bench.walls, bench.library, bench.task, bench.rng)
        self.trial = Trial(self.clock, self.reference, bench.machine, self._progress)
        self.checker = Checker(bench.walls, bench.library, self.reference, bench.rng)
        self.calibration: Calibration | None = None  # in force
        self.quiet: Calibration | None = None  # as first measured: what a later look returns to
        self.start: Candidate | None = None
        self.expected: dict[str, dict[str, float]] = {}  # tree or baseline -> case -> ns of a call
        self.watch = Watch()

    # ------------------------------------------------------------------------------------------ the three verbs

    def begin(self, start: Candidate, calibration: Calibration | None) -> Begin:
        """Judge the start, measure this machine's noise on it, try the baselines."""
        verdict = self.ready(start, calibration)
        if not verdict.kept:
            return Begin(verdict, None)
        found = self.calibrated()
        self.bench.emit(Event("calibrate", self._pace(start), calibration=found))
        return Begin(replace(verdict, mde=decide.mde(found)), found, tuple(self._baseline(b.name, start) for b in self.task.baselines))

    def ready(self, start: Candidate, calibration: Calibration | None) -> Verdict:
        """Judge the start, without measuring noise or baselines: what a single judgement needs."""
        self.start, self.calibration, self.quiet = start, calibration, calibration
        self.reference.frozen = self.arms.frozen(self._dtypes())
        ladder = Ladder(self.bench.walls.strength, self.bench.emit)
        checked = self._check(ladder, start, start)
        return checked if isinstance(checked, Verdict) else ladder.end(Reason.START, "", code=self.arms.code(start))

    def calibrated(self) -> Calibration:
        """The calibration, measured on the start when there is none yet."""
        if self.calibration is None:
            self.calibration = self.quiet = self._calibrator().run(self._start(), *self._against_itself(self._start()))
        return self.calibration

    def _pace(self, start: Candidate) -> str:
        """How many experiments an hour, from one round of the start against itself and what came before it."""
        spec, timed = self._against_itself(start)
        (one,) = self._measure(Pair(spec, spec, "itself", timed), 1)
        rule = decide.RULE
        miss, keep = (1.0 + n * one.seconds for n in (rule.screen + rule.test, rule.screen + rule.test + rule.confirm))
        return f"about {3600 / miss:.0f} experiments an hour: {miss:.0f} s for one without a gain, {keep:.0f} s for a keep"

    def lint(self) -> Report:
        """Raises TaskError when the task cannot be judged; the mutation score otherwise."""
        self.reference.frozen = self.arms.frozen(self._dtypes())
        return Linter(self.reference, self.bench.library, self.bench.rng).run()

    def evaluate(self, candidate: Candidate, against: Candidate, standing: tuple[CaseStanding, ...], *, only_try: bool = False) -> Verdict:
        self._ready(against)
        ladder = Ladder(self.bench.walls.strength, self.bench.emit)
        checked = self._check(ladder, candidate, against)
        if isinstance(checked, Verdict):
            return checked
        try:
            calibration = self._recheck(against, self.calibrated())
            outcome = self.trial.run(self._pair(checked, against), calibration, standing, decide.TRY if only_try else decide.RULE)
            self.watch.saw(against.tree, outcome.rounds)
        except MachineError as error:
            ladder.rung("time", False)
            return ladder.end(Reason.MACHINE, error.what)
        ladder.rung("time", outcome.kept)
        return ladder.timed(outcome, self.arms.code(candidate))

    def compare(self, champion: Candidate, opponent: str, rounds: int, final: bool) -> Direct:
        """Measure the champion against "start" or "baseline NAME" in fresh rounds."""
        checked = self._again(champion)
        other = (
            self.arms.start(self._start())
            if opponent == "start"
            else self.arms.baseline(opponent.removeprefix("baseline "), self._dtypes())
        )
        if isinstance(other, Failure):
            raise MachineError(f"{opponent} does not build: {other.detail}")
        found = self._measure(
            Pair(checked.spec, other, opponent, self._timed_cases(checked, self._expected_of(champion, opponent))), rounds
        )
        return direct(champion.n, opponent, found, self.calibrated(), final)

    # ------------------------------------------------------------------------------------------ rungs

    def _check(self, ladder: Ladder, candidate: Candidate, champion: Candidate) -> Checked | Verdict:
        """Guard, build and correct; code that was judged before ends it."""
        refused = guard.check(self.task, candidate, champion)
        ladder.rung("guard", not isinstance(refused, guard.Refused), () if isinstance(refused, guard.Refused) else refused)
        if isinstance(refused, guard.Refused):
            return ladder.end(refused.reason, refused.detail)
        pending = self.reference.ask(self._jobs())
        try:
            built = self.arms.build(candidate, self._dtypes())
            ladder.rung("build", isinstance(built, Built), () if isinstance(built, Failure) else (Fact("gcc", f"{built.seconds:.2f} s"),))
            if isinstance(built, Failure):
                return ladder.end(built.reason, built.detail, cheat=built.cheat)
            if broken := self._ruled(ladder, candidate, built):
                return broken
            if candidate is not champion and (known := self._known(built, champion)) is not None:
                where = f"experiment {known}" if known else "the kernel before"  # `check` has no experiments
                return ladder.end(Reason.SAME_CODE, f"the same machine code as {where}", code=built.code_hash)
            return self._correct(ladder, candidate, champion, self._by_case(self.reference.as_draws(pending)))
        finally:
            pending.close()

    def _ruled(self, ladder: Ladder, candidate: Candidate, built: Built) -> Verdict | None:
        """A rung of its own where the task has rules that a build can be held to."""
        if not rules.applies(self.task.rules):
            return None
        found = rules.check(self.task, candidate.files, built.path)
        if isinstance(found, Failure):
            return ladder.fail("rules", found, built.code_hash)
        ladder.rung("rules", True, found)
        return None

    def _known(self, built: Built, champion: Candidate) -> int | None:
        if built.code_hash == self.arms.code(champion):
            return champion.n
        return self.bench.known_code(built.code_hash)

    def _correct(self, ladder: Ladder, candidate: Candidate, champion: Candidate, draws: tuple[tuple[Draw, ...], ...]) -> Checked | Verdict:
        spec = self.arms.spec(candidate)
        found = self.checker.check(spec, draws, self.expected.get(champion.tree, {}))
        ladder.rung("correct", isinstance(found, Correct), () if isinstance(found, Failure) else found.facts)
        if isinstance(found, Failure):
            return ladder.end(found.reason, found.detail, cheat=found.cheat, code=self.arms.code(candidate))
        self.expected[candidate.tree] = {r.case: r.call_ns for r in found.cases}
        return Checked(spec, draws, found)

    # ------------------------------------------------------------------------------------------ what timing needs

    def _jobs(self) -> list[Job]:
        rng = self.bench.rng
        return [Job("make", case, tuple(rng.getrandbits(32) for _ in range(4))) for case in self.task.cases for _ in range(SEEDS)]

    def _by_case(self, draws: Sequence[Draw]) -> tuple[tuple[Draw, ...], ...]:
        return tuple(tuple(draws[i : i + SEEDS]) for i in range(0, len(draws), SEEDS))

    def _dtypes(self) -> dict[str, str]:
        """Dtype of every tensor, as inputs() and reference() return them; asked once."""
        if not self.arms.dtypes:
            (draw,) = self.reference.draws([Job("make", self.task.cases[0], (0,), oracle=False)])
            self.arms.dtypes = {s.name: s.dtype for s in draw.layout.slots}
        return self.arms.dtypes

    def _start(self) -> Candidate:
        if self.start is None:
            raise MachineError("the judge has not begun")
        return self.start

    def _pair(self, checked: Checked, against: Candidate) -> Pair:
        name = f"experiment {against.n}" if against.n else "the champion"
        timed = self._timed_cases(checked, self.expected[against.tree])
        return Pair(checked.spec, self.arms.spec(against), name, timed, self._extra_cases(checked, self.expected[against.tree]))

    def _timed_cases(self, checked: Checked, opponent_ns: dict[str, float]) -> tuple[Timed, ...]:
        return tuple(self._case(checked, draws, opponent_ns) for draws in checked.draws if draws[0].case.timed)

    def _extra_cases(self, checked: Checked, opponent_ns: dict[str, float]) -> tuple[Timed, ...]:
        """Cases used for correctness only that are large enough to be timed once in confirm."""
        made = [self._case(checked, draws, opponent_ns) for draws in checked.draws if not draws[0].case.timed]
        return tuple(t for t in made if t.count * t.call_ns >= TINY_NS)

    def _case(self, checked: Checked, draws: tuple[Draw, ...], opponent_ns: dict[str, float]) -> Timed:
        right = checked.correct.of(draws[0].case.name)
        known = opponent_ns.get(right.case, right.call_ns)
        count = min(sets_for(draws[0], min(known, right.call_ns)), TINY_SETS)
        return Timed(draws, count, right.budgets, max(known, right.call_ns))

    def _ready(self, champion: Candidate) -> None:
        """The champion is built and its times are known, also after a resume."""
        if champion.tree not in self.expected:
            self._again(champion)

    # ------------------------------------------------------------------------------------------ noise and opponents

    def _calibrator(self) -> Calibrator:
        return Calibrator(self.trial, self.arms, self.bench.machine, self.bench.emit)

    def _against_itself(self, candidate: Candidate) -> tuple[RunnerSpec, tuple[Timed, ...]]:
        """A candidate that passed before, checked again, ready to be timed against itself."""
        checked = self._again(candidate)
        return checked.spec, self._timed_cases(checked, self.expected[candidate.tree])

    def _again(self, champion: Candidate) -> Checked:
        checked = self._check(Ladder(self.bench.walls.strength, self.bench.emit), champion, champion)
        if isinstance(checked, Verdict):
            raise MachineError(f"the champion, kept before, now fails: {checked.detail}", next_step="keepfast log; keepfast doctor")
        return checked

    def _recheck(self, champion: Candidate, calibration: Calibration) -> Calibration:
        """Every so often, and when the champion's time drifts: is it still right, and this machine still as quiet?"""
        if self.watch.due():
            self.calibration = self._calibrator().again(self.quiet or calibration, *self._against_itself(champion))
        return self.calibration or calibration

    def _baseline(self, name: str, start: Candidate) -> BaselineResult:
        """Check one baseline and measure it against the start."""
        self.bench.emit(Event("baseline", name))
        spec = self.arms.baseline(name, self._dtypes())
        if isinstance(spec, Failure):
            return BaselineResult(name, False, spec.detail, None)
        draws = self._by_case(self.reference.draws(self._jobs()))
        found = self.checker.check(spec, draws, {})
        if isinstance(found, Failure):
            return BaselineResult(name, False, f"{SENTENCES[found.reason][1]}: {found.detail}", None)
        self.expected[f"baseline {name}"] = {r.case: r.call_ns for r in found.cases}
        timed = self._timed_cases(Checked(spec, draws, found), self.expected[start.tree])
        rounds = self._measure(Pair(spec, self.arms.spec(start), "start", timed), BASELINE_ROUNDS)
        return BaselineResult(name, True, "", self._estimate(rounds, "start"))

    def _expected_of(self, champion: Candidate, opponent: str) -> dict[str, float]:
        return self.expected.get(self._start().tree if opponent == "start" else opponent, self.expected[champion.tree])

    def _measure(self, pair: Pair, rounds: int) -> list[Round]:
        found = self.trial.measure(pair, decide.Measure(Phase.DIRECT, rounds))
        if isinstance(found, Failure):
            raise MachineError(f"a direct measurement failed: {found.detail}", next_step="keepfast doctor")
        return found

    def _estimate(self, rounds: Sequence[Round], opponent: str) -> Estimate:
        assert self.calibration is not None
        return estimate([r.d for r in rounds], opponent, self.calibration.sigma)

    def _progress(self, phase: Phase, made: Round) -> None:
        self.bench.emit(Event("round", phase.value, numbers=(("gain", percent(made.d)), ("seconds", made.seconds))))
