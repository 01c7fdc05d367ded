"""Everything that is known about one run, as one frozen record, and what follows from it: champion, totals, counts.

Pure but for `read`, which asks the ledger. Knows no terminal, no page. A total is a direct measurement where there is one;
between two of them it is *chained* from confirmed gains, and says so: only a direct measurement is ever claimed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import UsageError
from keepfast.model import BaselineResult, Calibration, Direct, Estimate, Event, Experiment, Goal, Idea, Kind, Reason, Run, Task
from keepfast.model.proof import Proof
from keepfast.report import numbers

if TYPE_CHECKING:
    from keepfast.ledger import Ledger


class Book(Struct, frozen=True):
    run: Run
    experiments: tuple[Experiment, ...] = ()  # oldest first
    directs: tuple[Direct, ...] = ()
    baselines: tuple[BaselineResult, ...] = ()
    calibration: Calibration | None = None
    ideas: tuple[Idea, ...] = ()
    task: Task | None = None  # None when the folder is gone or has changed since
    notes: tuple[Event, ...] = ()  # turns of agents and switches of the roster, oldest first
    proofs: tuple[tuple[int, Proof], ...] = ()  # (experiment, its newest proof in an engine), in the order of experiments


class Total(Struct, frozen=True):
    """The champion against the start. `direct` is False when the estimate is chained from gains (then `rounds` is 0)."""

    estimate: Estimate
    direct: bool


class Tally(Struct, frozen=True):
    tried: int
    kept: int
    reverted: int
    rejected: int
    suspect: int
    void: int
    cheats: int
    searched: int  # settings proposed by search, of any verdict


class Point(Struct, frozen=True):
    """Where the champion stood after experiment `n`: log-ratio against the start."""

    n: int
    d: float


def read(ledger: Ledger, run: Run, task: Task | None = None) -> Book:
    """The whole run without raw rounds (those of 10,000 experiments are not needed to report on them)."""
    notes = tuple(ledger.notes(run.id))
    return Book(
        run=run,
        experiments=tuple(ledger.experiments(run.id)),
        directs=tuple(ledger.directs(run.id)),
        baselines=tuple(ledger.baselines(run.id)),
        calibration=ledger.calibration(run.machine.hash, run.task_hash),
        ideas=tuple(ledger.ideas(run.task)),
        task=task,
        notes=notes,
        proofs=proofs(ledger, notes),
    )


def proofs(ledger: Ledger, notes: tuple[Event, ...]) -> tuple[tuple[int, Proof], ...]:
    """(experiment, its newest proof in an engine), in the order of experiments. A proof whose artifact is gone is left out."""
    found: dict[int, Proof] = {}
    for event in notes:
        if event.kind != "e2e" or not event.about:
            continue
        try:
            found[event.n] = msgspec.json.decode(ledger.artifact(event.about), type=Proof)
        except (UsageError, msgspec.DecodeError):
            continue
    return tuple(sorted(found.items()))


def lineage(ledger: Ledger, run: Run, experiment: Experiment) -> Book:
    """What `show` needs of a run: `experiment`, the champions it descends from, and their direct measurements."""
    path = [experiment]
    while path[-1].parent:
        path.append(ledger.experiment(run.id, path[-1].parent))
    return Book(run=run, experiments=tuple(reversed(path)), directs=tuple(ledger.directs(run.id)), ideas=tuple(ledger.ideas(run.task)))


def differ(book: Book, diff: Callable[[str, str], str]) -> Callable[[int], str]:
    """From `diff(commit, commit)` to `diff(n)`: experiment `n` against the champion it was judged against, or why there is none."""
    commits = {e.n: e.commit for e in book.experiments}
    parents = {e.n: e.parent for e in book.experiments}

    def of(n: int) -> str:
        before, after = commits.get(parents.get(n, 0), ""), commits.get(n, "")
        if not before or not after:
            return "(turned away before it was stored)"
        try:
            return diff(before, after)
        except UsageError as error:
            return f"({error.what})"

    return of


def tried(experiments: Iterable[Experiment]) -> tuple[Experiment, ...]:
    """Experiments that proposed something: all but the start."""
    return tuple(e for e in experiments if e.verdict.reason is not Reason.START)


def keeps(experiments: Iterable[Experiment]) -> tuple[Experiment, ...]:
    return tuple(e for e in tried(experiments) if e.verdict.kept)


def champion(experiments: Iterable[Experiment]) -> Experiment | None:
    """The last kept experiment, the start included; None before the start was judged."""
    return next((e for e in reversed(tuple(experiments)) if e.verdict.kept), None)


def tally(experiments: Iterable[Experiment]) -> Tally:
    new = tried(experiments)
    kinds = [e.verdict.kind for e in new]
    return Tally(
        tried=len(new),
        kept=kinds.count(Kind.KEEP),
        reverted=kinds.count(Kind.REVERT),
        rejected=kinds.count(Kind.REJECT),
        suspect=kinds.count(Kind.SUSPECT),
        void=kinds.count(Kind.VOID),
        cheats=sum(e.verdict.cheat for e in new),
        searched=sum(e.proposer == "search" for e in new),
    )


def against(directs: Iterable[Direct], n: int, opponent: str) -> Direct | None:
    """The newest direct measurement of champion `n` against `start` or `baseline NAME`; a final one wins."""
    found = [d for d in directs if d.n == n and d.against == opponent]
    return max(found, key=lambda d: (d.final, d.when), default=None)


def gain_of(experiment: Experiment) -> Estimate | None:
    """The gain of a keep; for one that a human cleared the best that was measured, None when it was not timed."""
    return experiment.verdict.gain or experiment.verdict.test


def total(experiments: tuple[Experiment, ...], directs: tuple[Direct, ...]) -> Total | None:
    """The champion over the start; None while the start is the champion."""
    return total_at(experiments, directs, None)


def total_at(experiments: tuple[Experiment, ...], directs: tuple[Direct, ...], n: int | None) -> Total | None:
    """As `total`, for the keep `n` (None: the last). Gains after the newest direct measurement are chained onto it."""
    parts: list[Estimate] = []
    for experiment in reversed([e for e in keeps(experiments) if n is None or e.n <= n]):
        measured = against(directs, experiment.n, "start")
        if measured is not None:
            return Total(_chain([measured.estimate, *parts]), direct=not parts)
        gain = gain_of(experiment)
        if gain is not None:
            parts.append(gain)
    return Total(_chain(parts), direct=False) if parts else None


def _chain(parts: list[Estimate]) -> Estimate:
    if len(parts) == 1:
        return replace(parts[0], opponent="start")  # the first keep was judged against the start
    d = sum(p.d for p in parts)
    half = math.sqrt(sum(((p.high - p.low) / 2) ** 2 for p in parts))
    return Estimate(d=d, low=d - half, high=d + half, sd=0.0, rounds=0, opponent="start")


def trail(experiments: tuple[Experiment, ...], directs: tuple[Direct, ...]) -> tuple[Point, ...]:
    """The champion's log-ratio against the start after each keep, the start at 0; what the progress chart draws."""
    points, d = [Point(0, 0.0)], 0.0
    for experiment in keeps(experiments):
        measured = against(directs, experiment.n, "start")
        gain = gain_of(experiment)
        d = measured.estimate.d if measured else d + (gain.d if gain else 0.0)
        points.append(Point(experiment.n, d))
    return tuple(points)


def best_baseline(baselines: Iterable[BaselineResult]) -> BaselineResult | None:
    """The fastest baseline that passed."""
    passed = [(b.estimate.d, b) for b in baselines if b.ok and b.estimate is not None]
    return min(passed, key=lambda pair: pair[0])[1] if passed else None


def over_baseline(experiments: tuple[Experiment, ...], directs: tuple[Direct, ...]) -> tuple[Direct, ...]:
    """Direct measurements of the champion against baselines, one a baseline, the closest opponent first."""
    best = champion(experiments)
    if best is None:
        return ()
    names = {d.against for d in directs if d.n == best.n and d.against != "start"}
    found = [m for name in names if (m := against(directs, best.n, name))]
    return tuple(sorted(found, key=lambda d: -d.estimate.d))


def busy(experiments: Iterable[Experiment], seconds: float) -> float | None:
    """Share of `seconds` in which the judge judged, 0 to 1; None before anything was judged."""
    judged = sum(e.verdict.seconds for e in experiments)
    return min(1.0, judged / seconds) if seconds > 0 and judged else None


def elapsed(book: Book) -> float:
    """Seconds from the run's start to its last experiment or direct measurement."""
    ends = [e.started + e.seconds for e in book.experiments[-1:]] + [d.when for d in book.directs[-1:]]
    return max(0.0, max(ends, default=book.run.started) - book.run.started)


def setting(run: Run, name: str) -> str:
    return dict(run.settings).get(name, "")


def goal_text(run: Run, task: Task | None = None) -> str:
    """`3.00x over start`; from the task, or from what the run was given. Empty when there is no goal."""
    goal = task.goal if task else goal_of(run)
    parts = []
    if goal.speedup is not None:
        parts.append(f"{goal.speedup:.2f}x over {'start' if goal.over == 'start' else 'the fastest baseline'}")
    if goal.limit is not None:
        parts.append(f"{100 * goal.limit:.0f} % of the limit")
    return ", ".join(parts)


def goal_of(run: Run) -> Goal:
    """The goal that the run was begun with, from its settings (`goal`, `over`, `limit`)."""
    return Goal(speedup=_number(setting(run, "goal")), over=setting(run, "over") or "baseline", limit=_number(setting(run, "limit")))


def _number(words: str) -> float | None:
    try:
        return float(words)
    except ValueError:
        return None


def goal_over_start(book: Book) -> float | None:
    """The goal as a speedup over the start, for the chart; over a baseline it is multiplied by that baseline's own speedup."""
    goal = book.task.goal if book.task else goal_of(book.run)
    if goal.speedup is None or goal.over == "start":
        return goal.speedup
    best = best_baseline(book.baselines)
    return goal.speedup * numbers.ratio(best.estimate.d) if best and best.estimate else None
