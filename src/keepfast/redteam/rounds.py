"""Changes that win by chance, or win and do not last: the real loop and the real decision, on rounds that are drawn instead of measured.

Owns the judge that draws rounds from what a proposal truly is. Same entry, same rounds. Must not know the corpus.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from keepfast import lifecycle, loop, settings
from keepfast.judge import decide, physics
from keepfast.judge.endings import Failure
from keepfast.judge.ladder import Ladder, Question, Suspect, direct, until_decided
from keepfast.ledger import Ledger
from keepfast.model import (
    Begin,
    Budget,
    Calibration,
    Candidate,
    CaseRound,
    CaseStanding,
    Direct,
    End,
    Experiment,
    Files,
    Goal,
    Machine,
    Phase,
    Proposal,
    Reason,
    Round,
    Task,
    Verdict,
)
from keepfast.redteam.entries import Entry, Folders
from keepfast.redteam.outcome import Found
from keepfast.redteam.proposals import WHO
from keepfast.repo import Repo
from keepfast.task.load import load
from keepfast.testing import FakeClock, ScriptedProposer

CALL_NS = 1e6  # of the start
FAIR = (Phase.CONFIRM, Phase.CASES, Phase.DIRECT)
NO_GOAL = "no-goal"  # the reason that a run has which does not meet its goal


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """Proposals, by how much faster they are, in per cent: while they are tested, while confirmed, and ever after (direct
    measurements). `cases`: of each case, at all times."""

    test: float = 0.0
    confirm: float = 0.0
    later: float | None = None
    cases: dict[str, float] = {}
    times: int = 1


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    """What is drawn, and what would be a miss: more keeps than `keeps_most`, a claim above `claim_most` times, a case slower than
    `loss_most` per cent; of an honest one fewer keeps than `keeps_least`. `sigma`, `layout`: of rounds, in per cent."""

    step: tuple[Step, ...]
    sigma: float
    layout: float = 0.0
    goal: float | None = None
    limit: float | None = None  # the start's time over what the machine allows
    keeps_most: int | None = None
    keeps_least: int = 0
    claim_most: float | None = None
    loss_most: float | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for step in self.step for _ in range(step.times))


class Drawn:
    """`loop.Judge` whose rounds are drawn. Experiment n is step n - 2."""

    def __init__(self, script: Script, task: Task, rng: Random) -> None:
        self.script, self.task, self.rng, self.steps = script, task, rng, script.steps
        sigma = script.sigma / 100
        cases = tuple((c.name, sigma) for c in task.cases)
        self.calibration = Calibration("drawn", sigma, 0.0, script.layout / 100, cases, 8, CALL_NS, 8.0, 1.7e9, 4)
        self.kept: list[Step] = []

    def begin(self, start: Candidate, calibration: Calibration | None) -> Begin:
        return Begin(self._ladder().end(Reason.START, ""), self.calibration, ())

    def evaluate(self, candidate: Candidate, against: Candidate, standing: tuple[CaseStanding, ...], *, only_try: bool = False) -> Verdict:
        step, ladder = self.steps[candidate.n - 2], self._ladder()
        question = Question(self.task.cases, f"experiment {against.n}", self.calibration, standing)

        def measure(wanted: decide.Measure) -> list[Round] | Failure:
            return [self._round(wanted.phase, [step]) for _ in range(wanted.rounds)]

        outcome = until_decided(question, measure, self._impossible)
        ladder.rung("time", outcome.kept)
        if outcome.kept:
            self.kept.append(step)
        return ladder.timed(outcome, "")

    def compare(self, champion: Candidate, opponent: str, rounds: int, final: bool) -> Direct:
        made = [self._round(Phase.DIRECT, self.kept) for _ in range(rounds)]
        return direct(champion.n, opponent, made, self.calibration, final)

    def loss(self) -> float:
        """Per cent that the worst case has truly lost since the start."""
        return max(math.expm1(sum(truth(s, c.name, Phase.DIRECT) for s in self.kept)) * 100 for c in self.task.cases)

    def _ladder(self) -> Ladder:
        return Ladder("walls", lambda event: None)

    def _round(self, phase: Phase, steps: Sequence[Step]) -> Round:
        sigma, found = self.script.sigma / 100, list[CaseRound]()
        for case in self.task.cases:
            d = sum(truth(s, case.name, phase) for s in steps) + self.rng.gauss(0.0, sigma)
            found.append(CaseRound(case.name, d, CALL_NS * math.exp(d), CALL_NS))
        return Round(phase, sum(c.d for c in found) / len(found), tuple(found), CALL_NS, 1.0)

    def _impossible(self, rounds: Sequence[Round]) -> Suspect | None:
        limit = CALL_NS / self.script.limit if self.script.limit else None
        times = ((case, [c.subject_ns for r in rounds for c in r.cases if c.case == case.name]) for case in self.task.cases)
        said = (physics.too_fast(case, sorted(ns)[len(ns) // 2], limit) for case, ns in times)
        why = next((text for text in said if text), "")
        return Suspect(Reason.TOO_FAST, why) if why else None


def truth(step: Step, case: str, phase: Phase) -> float:
    """The log-ratio that a proposal truly has in rounds of this phase."""
    later = step.confirm if step.later is None else step.later
    faster = later if phase is Phase.DIRECT else step.confirm if phase in FAIR else step.test
    return -math.log1p(step.cases.get(case, faster) / 100)


def verdict(entry: Entry, at: Folders) -> Found:
    """Run the loop over the entry's proposals, and look at what was kept and claimed."""
    script = msgspec.toml.decode(entry.source, type=Script)
    place = Path(tempfile.mkdtemp(prefix="keepfast-redteam-")).resolve()
    try:
        shutil.copytree(at.cpu / entry.task, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        for argv in (("init", "-q", "-b", "main"), ("add", "-A"), (*WHO, "commit", "-q", "-m", "start")):
            subprocess.run(["git", *argv], cwd=place, check=True, env=settings.git_environment(), stdin=subprocess.DEVNULL)
        task = replace(load(place), goal=Goal(script.goal, over="start"), budget=Budget(experiments=len(script.steps) + 1))
        judge = Drawn(script, task, Random(entry.id))
        end, tried = _run(place, task, judge, len(script.steps))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return _honest(script, end, tried) if entry.honest else _cheat(script, judge, (end, tried), entry.several("expect"))


def _run(place: Path, task: Task, judge: Drawn, count: int) -> tuple[End, tuple[Experiment, ...]]:
    proposals = tuple(
        Proposal(f"change {n}", "redteam", Files(((task.entry_path, f"int kernel(void) {{ return {n}; }}\n".encode()),)))
        for n in range(1, count + 1)
    )
    repo = Repo.find(place)
    with Ledger.open(repo.ensure_state()) as ledger:
        begun = lifecycle.new_run(task, repo, ledger, lifecycle.Options(Machine("drawn", 1, "", "", "walls", hash="drawn")))
        clock = FakeClock(tick=0.01)
        end = loop.run(loop.Session(task, repo, ledger, judge, ScriptedProposer(proposals), begun.run, lambda event: None, clock))
        return end, tuple(e for e in ledger.experiments(begun.run.id) if e.verdict.reason is not Reason.START)


def _cheat(script: Script, judge: Drawn, ran: tuple[End, tuple[Experiment, ...]], wanted: tuple[str, ...]) -> Found:
    end, tried = ran
    keeps, claim = sum(e.verdict.kept for e in tried), max((d.estimate.speedup for d in end.directs), default=1.0)
    said = f"{keeps} of {len(tried)} kept, {claim:.3f}x claimed, worst case {judge.loss():+.1f} %"
    if script.keeps_most is not None and keeps > script.keeps_most:
        return Found(False, "kept", detail=said)
    if script.claim_most is not None and claim > script.claim_most:
        return Found(False, "claimed", detail=said)
    if script.loss_most is not None and judge.loss() > script.loss_most:
        return Found(False, "eroded", detail=said)
    if script.goal is not None:
        return Found(True, NO_GOAL, "loop", said) if end.state != "goal" else Found(False, "goal", detail=said)
    return Found(True, _reason(tried, wanted), "time", said)


def _reason(tried: tuple[Experiment, ...], wanted: tuple[str, ...]) -> str:
    """The most frequent reason among those that were not kept; one that nobody meant comes first."""
    counts = Counter(e.verdict.reason.value for e in tried if not e.verdict.kept)
    odd = [reason for reason in counts if reason not in wanted]
    return odd[0] if odd else counts.most_common(1)[0][0] if counts else "nothing"


def _honest(script: Script, end: End, tried: tuple[Experiment, ...]) -> Found:
    keeps = sum(e.verdict.kept for e in tried)
    reasons = Counter(e.verdict.reason.value for e in tried)
    said = f"{keeps} of {len(tried)} kept: {', '.join(f'{n} {reason}' for reason, n in reasons.items())}"
    short = keeps < script.keeps_least or (script.goal is not None and end.state != "goal")
    return Found(short, reasons.most_common(1)[0][0] if short else "kept", "loop" if short else "", said, kept=not short)
