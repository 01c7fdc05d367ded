"""Where a run stands: totals since the last direct measurement, each case's standing, the goal, the budget.

Pure functions of what the ledger holds, so that a resumed run knows what an uninterrupted one would. Must not know how anything
was measured. Sums of gains only ever decide *when* to measure directly; nothing is claimed from them.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import UsageError, nearest
from keepfast.model import BaselineResult, Budget, CaseStanding, CaseTime, Direct, Estimate, Experiment, Task, Verdict

DIRECT_EVERY = 5  # keeps between two direct measurements, at most


class Progress(Struct, frozen=True):
    """What decides on goal and measuring. `keeps` is in order and starts with the start kernel; `directs` is oldest first."""

    task: Task
    keeps: tuple[Experiment, ...]
    directs: tuple[Direct, ...] = ()
    baselines: tuple[BaselineResult, ...] = ()

    @property
    def champion(self) -> Experiment:
        return self.keeps[-1]

    @property
    def improved(self) -> bool:
        return len(self.keeps) > 1

    def measured(self, against: str) -> Direct | None:
        """The newest direct measurement of the present champion."""
        return next((d for d in reversed(self.directs) if d.n == self.champion.n and d.against == against), None)

    def missing(self) -> tuple[str, ...]:
        """Opponents that the champion has not been measured against. The start is not measured against itself."""
        return tuple(o for o in self.opponents() if self.measured(o) is None and (self.improved or o != "start"))

    # ---------------------------------------------------------------------------------- opponents

    def opponents(self) -> tuple[str, ...]:
        """`start`, then the fastest passing baseline; with a goal over baselines, also those that may be the fastest."""
        ranked = self._ranked()
        fastest = ranked[0][1] if ranked else None
        contenders = [name for name, e in ranked if fastest and (e is fastest or (self._over_baseline and e.low <= fastest.high))]
        return ("start", *(f"baseline {name}" for name in contenders))

    def rivals(self) -> tuple[str, ...]:
        """The opponents that the goal is over."""
        return self.opponents()[1:] if self._over_baseline else ("start",)

    @property
    def _over_baseline(self) -> bool:
        return self.task.goal.over == "baseline"

    def _ranked(self) -> list[tuple[str, Estimate]]:
        passed = [(b.name, b.estimate) for b in self.baselines if b.ok and b.estimate is not None]
        return sorted(passed, key=lambda pair: pair[1].d)

    # ---------------------------------------------------------------------------------- running estimates

    def total(self, against: str = "start") -> float:
        """The champion's log-ratio against an opponent: the newest direct measurement plus the gains kept after it."""
        direct = next((d for d in reversed(self.directs) if d.against == against), None)
        if direct is not None:
            known, since = direct.estimate.d, direct.n
        else:
            opponent = next((e.d for name, e in self._ranked() if against == f"baseline {name}"), 0.0)
            known, since = -opponent, self.keeps[0].n
        return known + sum(gain_of(e.verdict) for e in self.keeps if e.n > since)

    def keeps_since_direct(self) -> int:
        """Keeps after the newest direct measurement against the start."""
        last = max((d.n for d in self.directs if d.against == "start"), default=self.keeps[0].n)
        return sum(e.n > last for e in self.keeps)

    def due(self) -> bool:
        """Whether the champion has to be measured directly now."""
        if not self.missing():
            return False
        half = self.measured("start") is not None  # killed between two opponents
        return half or self.keeps_since_direct() >= DIRECT_EVERY or self._may_be_met()

    def standing(self) -> tuple[CaseStanding, ...]:
        """Each timed case against the start: gains summed up, set anew by every direct measurement."""
        return tuple(self._case(c.name) for c in self.task.timed)

    def _case(self, name: str) -> CaseStanding:
        here, proven = CaseStanding(name), 0.0
        for keep in self.keeps:
            here = _stepped(here, _found(keep.verdict.cases, name))
            direct = next((d for d in reversed(self.directs) if d.n == keep.n and d.against == "start"), None)
            measured = _found(direct.cases, name) if direct else None
            if measured is not None:
                proven = min(proven, measured.d)
                here = CaseStanding(name, measured.d, proven, _variance(measured))
        return here

    # ---------------------------------------------------------------------------------- the goal

    def _may_be_met(self) -> bool:
        goal = self.task.goal
        fast = goal.speedup is not None and all(self.total(r) <= -math.log(goal.speedup) for r in self.rivals())
        share = self._limit_share(self.champion.verdict.cases)
        return fast or (goal.limit is not None and share is not None and share >= goal.limit)

    def met(self) -> str | None:
        """A sentence when direct measurements of the champion prove the goal, by the bound of their intervals; else None."""
        goal = self.task.goal
        if goal.speedup is not None:
            found = [self.measured(r) for r in self.rivals()]
            proven = [d for d in found if d is not None and d.estimate.speedup_low >= goal.speedup]
            if found and len(proven) == len(found):
                worst = max(proven, key=lambda d: d.estimate.d)
                return f"{said(worst)}, measured directly, {worst.estimate.rounds} rounds; the goal was {goal.speedup:g}x"
        direct = self.measured("start")
        share = self._limit_share(direct.cases) if direct else None
        if goal.limit is not None and direct is not None and share is not None:
            least = share * math.exp(direct.estimate.d - direct.estimate.high)
            if least >= goal.limit:
                return f"{100 * least:.0f} % of the physical limit, at least; the goal was {100 * goal.limit:g} %"
        return None

    def _limit_share(self, cases: tuple[CaseTime, ...]) -> float | None:
        """The share of the physical limit that measured cases reach, weighted; None where a limit is unknown."""
        known = {c.case: c for c in cases}
        parts = [(w, known.get(c.name)) for c, w in zip(self.task.timed, self.task.weights(), strict=True)]
        logs = [w * math.log(t.limit_ns / t.subject_ns) for w, t in parts if t is not None and t.limit_ns]
        return math.exp(sum(logs)) if logs and len(logs) == len(parts) else None


def gain_of(verdict: Verdict) -> float:
    """The log-ratio of a keep against the champion before it; the best there is for one that a human cleared."""
    estimate = verdict.gain or verdict.test
    return estimate.d if estimate else verdict.screen or 0.0


def said(direct: Direct) -> str:
    """`3.12x over start [3.07, 3.17]`"""
    e = direct.estimate
    return f"{e.speedup:.2f}x over {direct.against} [{e.speedup_low:.2f}, {e.speedup_high:.2f}]"


def _stepped(here: CaseStanding, gain: Estimate | None) -> CaseStanding:
    if gain is None:
        return here
    total = here.total + gain.d
    return CaseStanding(here.case, total, min(here.best, total), here.variance + _variance(gain))


def _found(cases: tuple[CaseTime, ...], name: str) -> Estimate | None:
    return next((c.estimate for c in cases if c.case == name), None)


def _variance(estimate: Estimate) -> float:
    return estimate.sd**2 / estimate.rounds if estimate.rounds else 0.0


# --------------------------------------------------------------------------------------------- the budget


class Spent(Struct, frozen=True):
    experiments: int  # void ones cost nothing
    hours: float
    dollars: float
    dry: int  # experiments in a row without a keep


def spent_out(budget: Budget, spent: Spent) -> str | None:
    """Which budget has ended, as a sentence; None while there is some left."""
    parts = (
        (budget.experiments, spent.experiments, f"{spent.experiments} of {budget.experiments} experiments"),
        (budget.hours, spent.hours, f"{spent.hours:.2f} of {budget.hours} hours"),
        (budget.dollars, spent.dollars, f"{spent.dollars:.2f} of {budget.dollars} dollars"),
        (budget.dry, spent.dry, f"{spent.dry} experiments in a row without a keep"),
    )
    return next((text for most, used, text in parts if most is not None and used >= most), None)


def left(budget: Budget, spent: Spent) -> str:
    """What is left, for a proposer to read: `33 of 40 experiments, 7.2 of 8 hours`."""
    parts = []
    if budget.experiments is not None:
        parts.append(f"{max(0, budget.experiments - spent.experiments)} of {budget.experiments} experiments")
    if budget.hours is not None:
        parts.append(f"{max(0.0, budget.hours - spent.hours):.1f} of {budget.hours:g} hours")
    if budget.dollars is not None:
        parts.append(f"{max(0.0, budget.dollars - spent.dollars):.2f} of {budget.dollars:g} dollars")
    return ", ".join(parts) if parts else "no budget was set"


def raised(budget: Budget, argument: str) -> Budget:
    """`budget` with new ceilings from `experiments=300 hours=10 dollars=20 dry=40`; UsageError for anything else."""
    for word in argument.split():
        name, _, value = word.partition("=")
        budget = _raised_one(budget, name, value)
    return budget


def _raised_one(budget: Budget, name: str, value: str) -> Budget:
    known = ("experiments", "hours", "dollars", "dry")
    if name not in known:
        what = f"no budget `{name}`.{nearest(name, known)}"
        raise UsageError(what, next_step=f"keepfast budget raise --experiments 300   (known: {', '.join(known)})")
    try:
        number = float(value) if name in ("hours", "dollars") else int(value)
    except ValueError:
        raise UsageError(f"budget {name} must be a number, not `{value}`", next_step=f"keepfast budget raise --{name} 300") from None
    if not 0 < number < 1e9:
        raise UsageError(f"budget {name} must be above 0", next_step=f"keepfast budget raise --{name} 300")
    return replace(budget, **{name: number})
