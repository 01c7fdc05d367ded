"""What a brief is written from: the proposer's Brief, and beside it what the ledger, the machine and the pages say. Data only.

`facts_of` is the one place that fills it, from records of the model and texts that it is handed. No seed, no commit, no path that is
absolute gets in: what is not in these records cannot be told to an agent.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from keepfast.context import Chosen, Device, Need
from keepfast.model import BaselineResult, Case, CaseTime, Direct, Estimate, Experiment, Idea, Machine, Task
from keepfast.progress import Progress
from keepfast.propose.agent import Page
from keepfast.propose.base import Brief

ANSWER = (
    "Edit the files named above in this folder, then end your turn and say in one line what you changed: that line is its title.",
    "Only files that match the editable patterns are read back. Nothing else that you write here is looked at.",
    "`keepfast try` judges the files as they stand: build errors, the first wrong element, a screening time. It counts against the budget.",
    "One change a turn, with one reason: a mixture of a gain and a loss reads as neither. Leave numbers in tunables to the search.",
    "Nobody answers questions. When nothing seems worth trying, change nothing and say why.",
)


class Records(Struct, frozen=True):
    """What the ledger holds beside experiments. `in_hand`: number of the idea that this turn is for, or None."""

    ideas: tuple[Idea, ...] = ()
    directs: tuple[Direct, ...] = ()
    baselines: tuple[BaselineResult, ...] = ()
    in_hand: int | None = None


class CaseNow(Struct, frozen=True):
    """A timed case and its champion: share of the overall time, time of a call, log-ratio against the start, the limit here."""

    case: Case
    weight: float
    ns: float | None = None
    total: float = 0.0
    limit_ns: float | None = None

    @property
    def share(self) -> float | None:
        """Of the physical limit that this machine's measured ceilings give."""
        return self.limit_ns / self.ns if self.limit_ns and self.ns else None


class Total(Struct, frozen=True):
    """The champion against an opponent: log-ratio; `direct` when it was measured, else gains were summed up."""

    against: str  # start | baseline NAME
    d: float
    direct: Estimate | None = None

    @property
    def speedup(self) -> float:
        return math.exp(-max(-25.0, min(25.0, self.d)))


class Standing(Struct, frozen=True):
    """Where the champion stands: `rivals` are what the goal is over, empty while no baseline was measured."""

    totals: tuple[Total, ...]
    cases: tuple[CaseNow, ...]
    rivals: tuple[str, ...] = ()
    met: str = ""  # how the goal was proven, or ""

    @property
    def share(self) -> float | None:
        """Of the physical limit over all timed cases, weighted; None where a limit or a time is unknown."""
        logs = [c.weight * math.log(c.share) for c in self.cases if c.share]
        return math.exp(sum(logs)) if logs and len(logs) == len(self.cases) else None


class BriefFacts(Struct, frozen=True):
    """`files`: (path, bytes) of the champion's editable files. `tunables`, `reference`: texts. `history` oldest first, without rounds."""

    task: Task
    champion: int
    files: tuple[tuple[str, int], ...]
    tunables: str
    history: tuple[Experiment, ...]
    standing: Standing
    budget_left: str = ""
    machine: Machine | None = None
    ideas: tuple[Idea, ...] = ()
    in_hand: int | None = None
    reference: str = ""
    pages: Chosen = Chosen()
    answer: tuple[str, ...] = ANSWER

    @property
    def best(self) -> Experiment | None:
        """The experiment that made the champion; None before a run."""
        return next((e for e in reversed(self.history) if e.n == self.champion), None)


def facts_of(brief: Brief, records: Records, machine: Machine | None, reference: str, pages: Chosen) -> BriefFacts:
    """All that the text says. `reference`: the text of reference.py; `pages`: what `context.choose` gave."""
    task, files = brief.task, brief.champion.files
    tunables = next((f.data.decode("utf-8", "replace") for f in files if task.tunables and f.path == task.tunables), "")
    return BriefFacts(
        task=task,
        champion=brief.champion.n,
        files=tuple((f.path, len(f.data)) for f in files),
        tunables=tunables,
        history=tuple(replace(e, verdict=replace(e.verdict, rounds=())) for e in brief.history),
        standing=standing_of(brief, records),
        budget_left=brief.budget_left,
        machine=machine,
        ideas=records.ideas,
        in_hand=records.in_hand,
        reference=reference,
        pages=pages,
    )


def need_of(task: Task, card: Device | None, ideas: tuple[Idea, ...], reference: str) -> Need:
    """What pages a task wants: by its card (None: none is known), its languages, its title, the ideas that are not dead, its reference."""
    text = "\n".join((task.name, task.title, task.signature.text, reference, *(i.text for i in ideas if i.state != "dead")))
    return Need(card, task.gpu, task.languages, text)


def as_files(pages: Chosen) -> tuple[Page, ...]:
    """The pages as an agent's workspace holds them, below context/."""
    return tuple(Page(s.name, s.text) for s in pages.sheets)


def standing_of(brief: Brief, records: Records) -> Standing:
    """Against the start and the fastest baselines, and case by case; of the bare task before a run."""
    task = brief.task
    keeps = tuple(e for e in brief.history if e.verdict.kept)
    bare = tuple(CaseNow(c, w) for c, w in zip(task.timed, task.weights(), strict=True))
    if not keeps:
        return Standing((), bare)
    progress = Progress(task, keeps, records.directs, records.baselines)
    measured = {o: progress.measured(o) for o in progress.opponents()}
    totals = tuple(Total(o, progress.total(o), found.estimate if found else None) for o, found in measured.items())
    times = {c.case: c for c in _times(progress)}
    cases = tuple(_now(c, times.get(c.case.name), {s.case: s.total for s in progress.standing()}) for c in bare)
    return Standing(totals, cases, progress.rivals(), progress.met() or "")


def _times(progress: Progress) -> tuple[CaseTime, ...]:
    """The times of the champion's calls, the newest of a case last."""
    directs = [d for d in progress.directs if d.n == progress.champion.n]
    return (*progress.champion.verdict.cases, *(case for d in directs for case in d.cases))


def _now(case: CaseNow, time: CaseTime | None, totals: dict[str, float]) -> CaseNow:
    total = totals.get(case.case.name, 0.0)
    return replace(case, total=total, ns=time.subject_ns, limit_ns=time.limit_ns) if time else replace(case, total=total)
