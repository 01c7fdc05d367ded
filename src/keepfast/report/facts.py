"""The records behind `--json`: the same facts as the text, in numbers. Owns their names; a field is only ever added.

One object a command, with `schema` naming its shape. Gains are in per cent, speedups are ratios, times carry their unit
in the name. The text is ASCII: control characters and direction marks leave as JSON escapes.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from msgspec import Struct

from keepfast.model import BaselineResult, CaseTime, Direct, Estimate, Experiment, Fact, Idea, Machine, Round, Rung
from keepfast.report import book as books
from keepfast.report import proposers, text
from keepfast.report.book import Book, Tally
from keepfast.report.numbers import percent_of, ratio
from keepfast.report.proposers import ProposerFact


class Number(Struct, frozen=True):
    """A ratio with its spread: how much faster than `opponent`, 95 % interval, between `rounds` rounds."""

    percent: float
    percent_low: float
    percent_high: float
    speedup: float
    speedup_low: float
    speedup_high: float
    sd_percent: float
    rounds: int
    opponent: str


class CaseFact(Struct, frozen=True):
    case: str
    subject_ns: float
    opponent_ns: float
    limit_ns: float | None
    gain: Number


class RoundFact(Struct, frozen=True):
    phase: str
    percent: float
    seconds: float
    sentinel_ns: float
    cases: tuple[tuple[str, float, float, float], ...]  # name, per cent, subject ns, opponent ns


class Row(Struct, frozen=True):
    """One line of the log."""

    n: int
    kind: str
    reason: str
    detail: str
    title: str
    proposer: str
    source: str
    idea: int | None
    parent: int
    started_unix: float
    seconds: float
    gain: Number | None
    test: Number | None
    screen_percent: float | None
    cheat: bool


class TotalFact(Struct, frozen=True):
    direct: bool
    number: Number


class DirectFact(Struct, frozen=True):
    n: int
    against: str
    final: bool
    when_unix: float
    number: Number
    cases: tuple[CaseFact, ...]


class BaselineFact(Struct, frozen=True):
    name: str
    ok: bool
    detail: str
    over_start: Number | None


class MachineFact(Struct, frozen=True):
    cpu: str
    cores: int
    kernel: str
    compiler: str
    walls: str
    gpu: str
    ceilings: dict[str, float]  # measured; the unit is in the name
    hash: str


class RunFact(Struct, frozen=True):
    id: str
    task: str
    task_hash: str
    state: str
    branch: str
    base: str
    seed: int
    started_unix: float
    settings: dict[str, str]
    machine: MachineFact


class Log(Struct, frozen=True):
    schema: str
    run: str
    left_out: int
    experiments: tuple[Row, ...]


class Show(Struct, frozen=True):
    schema: str
    run: str
    experiment: Row
    rungs: tuple[Rung, ...]
    cases: tuple[CaseFact, ...]
    rounds: tuple[RoundFact, ...]
    mde_percent: float | None
    false_keep: float | None
    total: TotalFact | None
    directs: tuple[DirectFact, ...]
    tunables: dict[str, int | float | str | bool]
    tree: str
    code: str
    commit: str
    walls: str
    machine: MachineFact
    diff: str | None


class Report(Struct, frozen=True):
    """`report`, `status`, and the end of `run`. `holder` is the process that runs it now, empty when none does."""

    schema: str
    run: RunFact
    holder: str
    champion: int | None
    total: TotalFact | None
    goal: str
    seconds: float
    busy: float | None
    tally: Tally
    directs: tuple[DirectFact, ...]
    baselines: tuple[BaselineFact, ...]
    keeps: tuple[Row, ...]
    ideas: tuple[Idea, ...]
    doubts: str
    html: str | None
    proposers: tuple[ProposerFact, ...] = ()


class SwitchFact(Struct, frozen=True):
    """A decision of the roster. `n`: number of the experiment that was in the making."""

    n: int
    proposer: str
    state: str
    why: str
    until_unix: float | None


class Roster(Struct, frozen=True):
    """`roster`. `budget_dollars` null: no budget of money; `unknown_turns`: turns whose cost nobody knows."""

    schema: str
    run: str
    proposers: tuple[ProposerFact, ...]
    switches: tuple[SwitchFact, ...]
    dollars: float
    tokens: int
    unknown_turns: int
    budget_dollars: float | None


class Ideas(Struct, frozen=True):
    schema: str
    task: str
    ideas: tuple[Idea, ...]


class Done(Struct, frozen=True):
    """What a command that changes something did. `queued`: a run is going on and does it at its next turn."""

    schema: str
    did: str
    queued: bool
    facts: tuple[Fact, ...] = ()


def encode(record: Struct) -> str:
    """One JSON object, indented, ASCII only; a number that is not finite becomes null."""
    return json.dumps(_finite(msgspec.to_builtins(record)), indent=2, ensure_ascii=True, allow_nan=False)


def encode_line(record: Struct) -> str:
    """As `encode`, on one line."""
    return json.dumps(_finite(msgspec.to_builtins(record)), ensure_ascii=True, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, (list, tuple)) else value


def number(e: Estimate) -> Number:
    return Number(
        percent=_round(percent_of(e.d)),
        percent_low=_round(percent_of(e.high)),
        percent_high=_round(percent_of(e.low)),
        speedup=_round(ratio(e.d)),
        speedup_low=_round(ratio(e.high)),
        speedup_high=_round(ratio(e.low)),
        sd_percent=_round(100 * e.sd),
        rounds=e.rounds,
        opponent=e.opponent,
    )


def _round(value: float) -> float:
    """Six digits after the point: below any clock, and the same text on every machine."""
    return round(value, 6)


def row(experiment: Experiment) -> Row:
    v = experiment.verdict
    return Row(
        n=experiment.n,
        kind=v.kind.value,
        reason=v.reason.value,
        detail=v.detail,
        title=experiment.title,
        proposer=experiment.proposer,
        source=experiment.source,
        idea=experiment.idea,
        parent=experiment.parent,
        started_unix=experiment.started,
        seconds=_round(experiment.seconds),
        gain=number(v.gain) if v.gain else None,
        test=number(v.test) if v.test else None,
        screen_percent=None if v.screen is None else _round(percent_of(v.screen)),
        cheat=v.cheat,
    )


def case(c: CaseTime) -> CaseFact:
    return CaseFact(c.case, c.subject_ns, c.opponent_ns, c.limit_ns, number(c.estimate))


def direct(d: Direct) -> DirectFact:
    return DirectFact(d.n, d.against, d.final, d.when, number(d.estimate), tuple(case(c) for c in d.cases))


def _round_fact(r: Round) -> RoundFact:
    cases = tuple((c.case, _round(percent_of(c.d)), c.subject_ns, c.opponent_ns) for c in r.cases)
    return RoundFact(r.phase.value, _round(percent_of(r.d)), _round(r.seconds), r.sentinel_ns, cases)


def _total(book: Book, n: int | None) -> TotalFact | None:
    total = books.total_at(book.experiments, book.directs, n)
    return TotalFact(total.direct, number(total.estimate)) if total else None


def log(run: str, experiments: tuple[Experiment, ...], left_out: int) -> Log:
    return Log("keepfast.log/1", run, left_out, tuple(row(e) for e in experiments))


def show(book: Book, experiment: Experiment, diff: str | None = None) -> Show:
    v = experiment.verdict
    return Show(
        schema="keepfast.show/1",
        run=book.run.id,
        experiment=row(experiment),
        rungs=v.rungs,
        cases=tuple(case(c) for c in v.cases),
        rounds=tuple(_round_fact(r) for r in v.rounds),
        mde_percent=None if v.mde is None else _round(percent_of(-v.mde)),
        false_keep=v.false_keep,
        total=_total(book, experiment.n) if v.kept else None,
        directs=tuple(direct(d) for d in book.directs if d.n == experiment.n),
        tunables=dict(experiment.tunables),
        tree=experiment.tree,
        code=v.code,
        commit=experiment.commit,
        walls=v.walls,
        machine=_machine(book.run.machine),
        diff=diff,
    )


def report(book: Book, *, schema: str = "keepfast.report/1", holder: str = "", html: str | None = None) -> Report:
    best = books.champion(book.experiments)
    seconds = books.elapsed(book)
    busy = books.busy(book.experiments, seconds)
    return Report(
        schema=schema,
        run=run_fact(book),
        holder=holder,
        champion=best.n if best else None,
        total=_total(book, None),
        goal=books.goal_text(book.run, book.task),
        seconds=_round(seconds),
        busy=None if busy is None else _round(busy),
        tally=books.tally(book.experiments),
        directs=tuple(direct(d) for d in book.directs),
        baselines=tuple(_baseline(b) for b in book.baselines),
        keeps=tuple(row(e) for e in books.keeps(book.experiments)),
        ideas=book.ideas,
        doubts=text.doubts(book),
        html=html,
        proposers=proposers.facts(book),
    )


def roster(book: Book) -> Roster:
    dollars, tokens, unknown = proposers.paid(book)
    said = (e.switch for e in book.notes if e.switch is not None)
    switches = tuple(SwitchFact(s.n, s.proposer, s.state, s.why, s.until) for s in said)
    budget = book.task.budget.dollars if book.task else None
    return Roster("keepfast.roster/1", book.run.id, proposers.facts(book), switches, _round(dollars), tokens, unknown, budget)


def _machine(m: Machine) -> MachineFact:
    return MachineFact(m.cpu, m.cores, m.kernel, m.compiler, m.walls, m.gpu, dict(m.ceilings), m.hash)


def _baseline(b: BaselineResult) -> BaselineFact:
    return BaselineFact(b.name, b.ok, b.detail, number(b.estimate) if b.estimate else None)


def run_fact(book: Book) -> RunFact:
    r = book.run
    return RunFact(r.id, r.task, r.task_hash, r.state, r.branch, r.base, r.seed, r.started, dict(r.settings), _machine(r.machine))
