"""The story of `keepfast certify`: the champion of the last run, held against its fallbacks wherever the space says, until a table stands.

Owns what is measured when, what is stored after every batch, and what may be taken up again. Must not know how a region is decided.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from keepfast import shop
from keepfast.dispatch import measure, regions, shapes, table
from keepfast.dispatch import space as spaces
from keepfast.dispatch.records import ROUTES, SHEET, Axes, Finding, Seen, Sheet, Space, Table, Terms
from keepfast.errors import TaskError, UsageError
from keepfast.ledger import Ledger
from keepfast.materialise import Workshop
from keepfast.model import Calibration, Candidate, Event, Experiment, Run
from keepfast.options import RunOptions

ALPHA = 0.05  # that any measured cell is routed to a kernel that is not faster there
KIND = "certify"

Measure = Callable[[tuple[Axes, ...]], tuple[Finding, ...]]
Save = Callable[[Sheet], object]


class Wanted(Struct, frozen=True):
    """`keepfast certify` as it was asked for. `hours` None: until it is done; `again`: what was measured before does not count."""

    options: RunOptions
    hours: float | None = None
    again: bool = False
    tell: Callable[[Event], None] = lambda event: None


class Subject(Struct, frozen=True):
    """What is certified: a kept experiment of a run, and the noise that its judge knows."""

    run: Run
    kept: Experiment
    candidate: Candidate
    calibration: Calibration


class Certified(Struct, frozen=True):
    """The table, and the artifact that holds it."""

    table: Table
    artifact: str


def certify(folder: Path, wanted: Wanted) -> Certified:
    """Measure what is missing, decide, store, and give back the table; it is not `complete` when the hours were over first."""
    ready = shop.open_shop(folder, wanted.options)
    with Ledger.open(ready.repo.ensure_state()) as ledger, ledger.hold(""):
        subject = subject_of(ready, ledger)
        names = spaces.fallbacks(ready.task, ready.task.dispatch)
        if not names:
            step = "Write one in baselines/: what it is held against, and what runs where it does not win"
            raise TaskError("there is no baseline to fall back to", where=f"{ready.task.folder}/baselines", next_step=step)
        seen = measure.seen(ready, ready.task.cases)
        arguments, _ = shapes.read(ready.task.signature, seen)
        space = spaces.made(ready.task, {axis for axis, _ in shapes.places(arguments)})
        contest = measure.Contest(ready, subject.candidate, subject.calibration, names, ready.task.dispatch.rounds, wanted.tell)
        sheet = _sheet(ledger, subject, _key(contest), again=wanted.again)
        terms = Terms(ALPHA, regions.most(space), subject.calibration.margin, subject.calibration.sigma)
        end = time.monotonic() + wanted.hours * 3600 if wanted.hours is not None else None
        plan = Plan(space, terms, lambda found: _store(ledger, subject.run, found, "measured so far"), end)
        sheet, complete = swept(plan, sheet, lambda points: measure.measured(contest, points))
        return _finished(ledger, contest, subject, (space, terms, sheet, complete))


# --------------------------------------------------------------------------------------------- what to measure


class Plan(Struct, frozen=True):
    """`end`: on the monotonic clock, None for never. `save` is called after every batch."""

    space: Space
    terms: Terms
    save: Save
    end: float | None = None
    clock: Callable[[], float] = time.monotonic


def swept(plan: Plan, sheet: Sheet, measured: Measure) -> tuple[Sheet, bool]:
    """The sheet with everything measured that the space asks for, and whether that was all of it."""
    while True:
        points = missing(plan, sheet)
        if not points:
            return sheet, True
        for start in range(0, len(points), measure.BATCH):
            if plan.end is not None and plan.clock() >= plan.end:
                return sheet, False
            sheet = Sheet(sheet.key, sheet.findings + measured(points[start : start + measure.BATCH]))
            plan.save(sheet)


def missing(plan: Plan, sheet: Sheet) -> tuple[Axes, ...]:
    """Points that the next cells need and that nobody has looked at. What the machine could not do is not asked for again in one go."""
    known = {f.point for f in sheet.findings}
    grid = [p for cell in plan.space.cells() for p in plan.space.points(cell) if p not in known]
    if grid:
        return tuple(grid)
    won = table.won(table.rows(plan.space, sheet.findings, plan.terms))
    return tuple(p for cell in regions.next_cells(plan.space, won) for p in plan.space.points(cell) if p not in known)


# --------------------------------------------------------------------------------------------- where it comes from and goes to


def subject_of(ready: shop.Shop, ledger: Ledger) -> Subject:
    """The champion of this task's last run here. UsageError when there is none, or it was judged on another task or machine."""
    run = ledger.latest(ready.task.name)
    kept = ledger.champion(run.id) if run is not None else None
    step = f"keepfast run {ready.task.name}"
    if run is None or kept is None:
        raise UsageError(f"no champion of {ready.task.name} to certify", next_step=step)
    if run.task_hash != ready.task.hash:
        raise UsageError(f"the task has changed since run {run.id}: its champion was judged on another", next_step=step)
    if run.machine.hash != ready.machine.hash:
        raise UsageError(f"run {run.id} was judged on another machine: times do not compare", next_step=f"{step}   here")
    calibration = ledger.calibration(ready.machine.hash, ready.task.hash)
    if calibration is None:
        raise UsageError("the noise of this machine is not known for this task", next_step=f"keepfast calibrate {ready.task.name}")
    return Subject(run, kept, Workshop(ready.task, ready.repo).at(kept.commit, kept.n), calibration)


def _key(contest: measure.Contest) -> str:
    """Findings count again for the same task, kernel, machine, opponents and rounds."""
    machine = contest.ready.machine
    facts = (contest.ready.task.hash, contest.champion.tree, machine.hash, machine.walls, contest.fallbacks, contest.rounds)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _sheet(ledger: Ledger, subject: Subject, key: str, *, again: bool) -> Sheet:
    """What was measured before for the same key; what the machine could not do then is tried again."""
    found = next((s for s in stored(ledger, subject.run, SHEET) if isinstance(s, Sheet) and s.key == key), None)
    if found is None or again:
        return Sheet(key)
    return Sheet(key, tuple(f for f in found.findings if f.state != "void"))


def stored(ledger: Ledger, run: Run, schema: str) -> Iterator[Sheet | Table]:
    """Sheets or tables of the run, the newest first."""
    names = [s.event.about for s in ledger.events(run.id) if s.event.kind == KIND and s.event.about]
    for name in reversed(names):
        data = ledger.artifact(name)
        if json.loads(data).get("schema") == schema:
            yield msgspec.json.decode(data, type=Table if schema == ROUTES else Sheet)


def newest_table(ledger: Ledger, run: Run, tree: str) -> Table | None:
    """The newest complete table of this kernel; None when it was not certified."""
    found = (t for t in stored(ledger, run, ROUTES) if isinstance(t, Table))
    return next((t for t in found if t.tree == tree and t.complete and t.task_hash == run.task_hash), None)


def _store(ledger: Ledger, run: Run, record: Sheet | Table, text: str) -> str:
    name = ledger.put_artifact(msgspec.json.encode(record))
    ledger.add_event(run.id, Event(KIND, text, about=name))
    return name


def _finished(ledger: Ledger, contest: measure.Contest, subject: Subject, found: tuple[Space, Terms, Sheet, bool]) -> Certified:
    space, terms, sheet, complete = found
    rows = table.rows(space, sheet.findings, terms)
    points = (*(c.axes for c in contest.ready.task.cases), *(f.point for f in sheet.findings if f.state == "measured"))
    arguments, outputs = shapes.read(contest.ready.task.signature, _laid_out(contest, points))
    machine = contest.ready.machine
    made = Table(
        task=contest.ready.task.name,
        task_hash=contest.ready.task.hash,
        signature=contest.ready.task.signature.text,
        run=subject.run.id,
        champion=subject.kept.n,
        tree=subject.candidate.tree,
        commit=subject.kept.commit,
        device="cuda" if contest.ready.task.gpu else "cpu",
        machine=machine.hash,
        card=machine.gpu or machine.cpu,
        versions=versions(gpu=contest.ready.task.gpu),
        walls=machine.walls,
        stock=contest.fallbacks[0],
        fallbacks=contest.fallbacks,
        space=space,
        terms=terms,
        rounds=contest.rounds,
        when=time.time(),
        complete=complete,
        arguments=arguments,
        outputs=outputs,
        rows=rows,
        regions=table.decided(space, rows),
    )
    return Certified(made, _store(ledger, subject.run, made, "routing table" if complete else "routing table, not complete"))


def _laid_out(contest: measure.Contest, points: Iterable[Axes]) -> tuple[Seen, ...]:
    """Every point once, the task's own cases by their own names."""
    own = {c.axes: c for c in reversed(contest.ready.task.cases)}
    cases = [own.get(p) or spaces.case(p) for p in dict.fromkeys(points)]
    return measure.seen(contest.ready, cases)


def versions(*, gpu: bool) -> tuple[tuple[str, str], ...]:
    """What a router looks up again where it runs; the same words as in templates/_router.py."""
    if not gpu:
        from keepfast.device.cpu import compiler
        from keepfast.device.nvidia_software import version

        return (("compiler", compiler()), ("numpy", version("numpy")))
    from keepfast.device import nvidia, nvidia_software

    known = dict(nvidia_software.versions())
    return (("driver", nvidia.drivers()[0].split(".")[0]), ("torch", known["torch"]), ("triton", known["triton"]))
