"""The report as one self-contained page: no script, no external file, light and dark. Owns what is on it and its caps.

All text is foreign until proven otherwise: it passes through `escape.line` here and through autoescape in the template.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from keepfast.errors import LedgerError
from keepfast.model import CaseTime, Direct, Experiment, Fact, Kind, Reason, Run
from keepfast.report import book as books
from keepfast.report import chart as charts
from keepfast.report import numbers, show, summary, text
from keepfast.report.book import Book
from keepfast.report.escape import clip, line, lines

ROWS = 500  # newest experiments in the table; as many keeps and suspects come on top
DIFFS_NEWEST = 50
DIFFS_MARKED = 100  # newest keeps and suspects with a diff
DIFF_LINES = 400
DIFF_COLUMNS = 400


class Page(Struct, frozen=True):
    title: str
    heading: str
    result: str
    tally: str
    header: tuple[Fact, ...]
    machine: tuple[Fact, ...]


class Size(Struct, frozen=True):
    width: int = charts.WIDTH
    height: int = charts.HEIGHT
    left: int = charts.LEFT
    right: int = charts.RIGHT


class Lane(Struct, frozen=True):
    y: int
    label: str


class Row(Struct, frozen=True):
    n: int
    kind: str
    word: str
    result: str
    rounds: str
    against: str
    took: str
    by: str
    text: str
    diff: bool


class DiffLine(Struct, frozen=True):
    kind: str  # add | del | hunk | ""
    text: str


class Diff(Struct, frozen=True):
    n: int
    kind: str
    text: str
    lines: tuple[DiffLine, ...]
    left_out: int


class DirectRow(Struct, frozen=True):
    n: int
    against: str
    speedup: str
    rounds: int
    sd: str
    when: str


class CaseRow(Struct, frozen=True):
    case: str
    subject: str
    opponent: str
    gain: str
    rounds: int
    limit: str


class BaselineRow(Struct, frozen=True):
    name: str
    speedup: str
    rounds: str
    detail: str


def path(state: Path, run: Run) -> Path:
    """Where the page of `run` belongs, below the repository's `.keepfast` folder."""
    return state / "report" / f"{run.id.replace('/', '-')}.html"


def write(book: Book, diff: Callable[[int], str], target: Path) -> None:
    """Renders to `target`, whole or not at all: a reader never sees half a page. LedgerError when it cannot be written."""
    page = render(book, diff)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(page, encoding="utf-8", errors="backslashreplace")
        part.replace(target)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        step = "keepfast report --output FILE   writes it elsewhere"
        raise LedgerError(f"cannot be written: {error.strerror}", where=str(target), next_step=step) from error


def render(book: Book, diff: Callable[[int], str]) -> str:
    """The page. `diff(n)` gives the unified diff of experiment `n` against the champion it was judged against."""
    from importlib.resources import files

    from jinja2 import Environment, StrictUndefined

    source = files("keepfast.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    shown, with_diff = _shown(book), _with_diff(book)
    names = {e.n for e in with_diff}
    cases = _measured_cases(book)
    return template.render(
        page=_page(book),
        chart=charts.draw(book),
        size=Size(),
        lanes=[Lane(y, {Kind.REVERT: "not timed", Kind.REJECT: "rejected", Kind.SUSPECT: "suspect"}[k]) for k, y in charts.LANES.items()],
        directs=[_direct(d) for d in book.directs],
        cases=[_case(c) for c in cases],
        cases_caption=f"The champion by case, against {line(cases[0].estimate.opponent)}. Wall time of one call." if cases else "",
        baselines=_baselines(book),
        rows=[_row(e, e.n in names) for e in shown],
        table_caption=_table_caption(book, len(shown)),
        diffs=[_diff(e, diff(e.n)) for e in with_diff],
        diffs_caption=_diffs_caption(book, len(with_diff)),
    )


def _page(book: Book) -> Page:
    run, tally = book.run, books.tally(book.experiments)
    header = [
        Fact("goal", books.goal_text(run, book.task) or "none: as fast as the budget allows"),
        Fact("spent", text.budget_text(book)),
        Fact("cost", summary.cost_text(book)),
        Fact("limit", summary.limits_text(book)),
        Fact("doubt", text.doubts(book)),
        Fact("code", summary.code_text(book)),
    ]
    return Page(
        title=line(f"keepfast: {run.id}"),
        heading=line(f"{run.task}: {run.title}" if run.title else run.task),
        result=summary.result_text(book),
        tally=f"{tally.tried:,} tried: {text.tally_line(tally)}.",
        header=tuple(f for f in header if f.value),
        machine=tuple(_machine(book)),
    )


def _machine(book: Book) -> list[Fact]:
    run, m = book.run, book.run.machine
    busy = books.busy(book.experiments, books.elapsed(book))
    facts = [
        Fact("run", f"{run.id}, began {numbers.clock(run.started)}, state {run.state}, seed {run.seed}"),
        Fact("machine", f"{m.cpu}, {text.machine_line(m)}, Linux {m.kernel}"),
        *(Fact(name.replace("_", " "), f"{value:.4g}") for name, value in m.ceilings),
        Fact("judge busy", f"{100 * busy:.0f} % of the run" if busy is not None else ""),
        Fact("noise", _noise(book)),
        Fact("calibrated", _calibrated(book)),
        Fact("base commit", run.base),
        Fact("task hash", run.task_hash),
        *(Fact(f"option {name}", value) for name, value in run.settings),
    ]
    return [Fact(line(f.name), line(f.value)) for f in facts if f.value]


def _noise(book: Book) -> str:
    c = book.calibration
    if c is None:
        return ""
    return (
        f"SD between rounds {numbers.spread(c.sigma)}, between layouts of the same code {numbers.spread(c.layout)}; "
        f"a gain must be larger than {numbers.spread(c.margin)}"
    )


def _calibrated(book: Book) -> str:
    c = book.calibration
    return f"{numbers.clock(c.when)}, {numbers.count(c.rounds, 'round')}, {numbers.count(c.layouts, 'layout')}" if c else ""


def _marked(e: Experiment) -> bool:
    return e.verdict.kind in (Kind.KEEP, Kind.SUSPECT)


def _shown(book: Book) -> tuple[Experiment, ...]:
    """The newest experiments, and before them the newest keeps and suspects; newest first."""
    newest = book.experiments[-ROWS:]
    marked = [e for e in book.experiments[:-ROWS] if _marked(e)][-ROWS:]
    return tuple(reversed([*marked, *newest]))


def _table_caption(book: Book, shown: int) -> str:
    everything = len(book.experiments)
    if shown == everything:
        return f"All {everything:,} experiments, newest first. Intervals are 95 %; took: wall time."
    return (
        f"{shown:,} of {everything:,} experiments, newest first: the last {ROWS} and up to {ROWS} earlier keeps and suspects. "
        "All: keepfast log --newest 0. Intervals are 95 %; took: wall time."
    )


def _with_diff(book: Book) -> tuple[Experiment, ...]:
    new = books.tried(book.experiments)
    marked = [e for e in new[:-DIFFS_NEWEST] if _marked(e)][-DIFFS_MARKED:]
    return tuple(reversed([*marked, *new[-DIFFS_NEWEST:]]))


def _diffs_caption(book: Book, shown: int) -> str:
    if not shown:
        return "Nothing was proposed yet."
    marked = sum(_marked(e) for e in books.tried(book.experiments)[:-DIFFS_NEWEST])
    capped = f" (the newest {DIFFS_MARKED} of {marked:,})" if marked > DIFFS_MARKED else ""
    return f"Keeps and suspects{capped} and the last {DIFFS_NEWEST} experiments, newest first; each against its champion then."


def _row(e: Experiment, has_diff: bool) -> Row:
    v = e.verdict
    measured = v.gain or v.test
    return Row(
        n=e.n,
        kind=v.kind.value,
        word="start" if v.reason is Reason.START else v.kind.value,
        result=line(text.result(e)),
        rounds=str(measured.rounds) if measured else "1" if v.screen is not None else "",
        against=line(measured.opponent) if measured else "",
        took=numbers.duration(e.seconds),
        by=line(e.proposer),
        text=clip(line(text.sentence(e)), DIFF_COLUMNS),
        diff=has_diff,
    )


def _diff(e: Experiment, unified: str) -> Diff:
    found = lines(unified.rstrip("\n")) if unified.strip() else ["(no difference)"]
    shown = tuple(DiffLine(_diff_kind(x), clip(x, DIFF_COLUMNS)) for x in found[:DIFF_LINES])
    return Diff(e.n, e.verdict.kind.value, clip(line(text.sentence(e)), 200), shown, max(0, len(found) - DIFF_LINES))


def _diff_kind(one: str) -> str:
    if one.startswith(("+++", "---", "diff ", "index ")):
        return ""
    return {"+": "add", "-": "del", "@": "hunk"}.get(one[:1], "")


def _direct(d: Direct) -> DirectRow:
    e = d.estimate
    when = numbers.clock(d.when) + (", final" if d.final else "")
    return DirectRow(d.n, line(d.against), f"{numbers.speedup(e)} {numbers.interval(e)}", e.rounds, numbers.spread(e.sd), when)


def _measured_cases(book: Book) -> tuple[CaseTime, ...]:
    """The cases of the champion's newest direct measurement against the start, else of its own verdict."""
    best = books.champion(book.experiments)
    if best is None:
        return ()
    measured = books.against(book.directs, best.n, "start")
    return measured.cases if measured and measured.cases else best.verdict.cases


def _case(c: CaseTime) -> CaseRow:
    return CaseRow(
        case=line(c.case),
        subject=numbers.nanoseconds(c.subject_ns),
        opponent=numbers.nanoseconds(c.opponent_ns),
        gain=numbers.gain(c.estimate),
        rounds=c.estimate.rounds,
        limit=show.limit_text(c),
    )


def _baselines(book: Book) -> list[BaselineRow]:
    return [
        BaselineRow(
            name=line(b.name),
            speedup=f"{numbers.speedup(b.estimate)} {numbers.interval(b.estimate)}" if b.estimate else "",
            rounds=str(b.estimate.rounds) if b.estimate else "",
            detail="passed" if b.ok else line(b.detail) or "did not pass",
        )
        for b in book.baselines
    ]
