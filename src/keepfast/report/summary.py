"""The end of a run: what was reached, what to ship, how sure it is, what to type next. For the last lines of `run` and for `report`."""

from __future__ import annotations

from pathlib import Path

from keepfast.model import Direct, Experiment, Idea, Kind
from keepfast.report import book as books
from keepfast.report import e2e, numbers, proposers, text
from keepfast.report.book import Book
from keepfast.report.escape import fold, line

INDENT = 9


def end(book: Book, why: str, report: Path | None = None, columns: int = text.COLUMNS) -> list[str]:
    """The closing lines of `run`. `why` is one sentence on why it ended; a goal that was met is said with its number."""
    met = book.run.state == "goal"
    rows = [
        ("", f"goal met: {result_text(book)}" if met else line(why)),
        ("", "" if met else f"champion: {result_text(book)}"),
        ("", text.tally_line(books.tally(book.experiments))),
        ("report", _short(report) if report else ""),
        ("code", code_text(book)),
        ("e2e", e2e.survived(book.proofs)),
        ("doubt", text.doubts(book)),
        ("next", text.next_step(book) if book.run.state not in ("goal", "deck-done") else ""),
    ]
    return [*(["kept", *text.log(kept, columns), ""] if (kept := books.keeps(book.experiments)) else []), *_rows(rows, columns)]


def morning(book: Book, report: Path | None = None, columns: int = text.COLUMNS) -> list[str]:
    """`keepfast report`: the run on one screen."""
    tally = books.tally(book.experiments)
    rows = [
        ("", _head(book)),
        ("", f"{tally.tried:,} tried: {text.tally_line(tally)}"),
        ("ship", result_text(book)),
        ("goal", books.goal_text(book.run, book.task)),
        *(("over", baseline_text(d)) for d in books.over_baseline(book.experiments, book.directs)[1:]),
        ("limit", limits_text(book)),
        ("e2e", e2e.survived(book.proofs)),
        ("", e2e.newest(book.proofs)),
        ("pace", pace_text(book)),
        ("cost", cost_text(book)),
        *(("idea", words) for words in _earned(book)),
        ("doubt", text.doubts(book)),
        ("report", _short(report) if report else ""),
        ("code", code_text(book)),
        ("next", f"keepfast show {best.n} --diff   |   keepfast finalize" if (best := books.champion(book.experiments)) else ""),
    ]
    many = len(proposers.facts(book)) > 1 or any(e.turn for e in book.notes)
    who = ["", *proposers.table(book, columns)] if many else []
    return [*_rows(rows, columns), *who, "", *keep_table(book, columns)]


def roster(book: Book, columns: int = text.COLUMNS) -> list[str]:
    """`keepfast roster`: the proposers, the money, and what was decided about them."""
    said = proposers.switches(book.notes, columns)
    cost = [f"cost      {words}"] if (words := cost_text(book)) else []
    shown = proposers.table(book, columns) if proposers.facts(book) else ["nobody has proposed anything yet"]
    return [*shown, *(["", *cost] if cost else []), *(["", "   n  switches, newest last", *said] if said else [])]


def _rows(rows: list[tuple[str, str]], columns: int) -> list[str]:
    out: list[str] = []
    for name, words in rows:
        if name and words:
            out += text.row(name, words, columns, INDENT)
        elif words:
            first, *rest = fold(words, columns)
            out += [first, *([" " * INDENT + r for r in fold(" ".join(rest), columns - INDENT)] if rest else [])]
    return out


def _head(book: Book) -> str:
    run = book.run
    took = numbers.duration(books.elapsed(book))
    return line(f"{run.id}: from {numbers.clock(run.started)}, {took}, {text.machine_line(run.machine)}, task {run.task}")


def result_text(book: Book) -> str:
    """What the champion is worth: over the start, and over the fastest baseline that was measured."""
    best = books.champion(book.experiments)
    if best is None:
        return "the start kernel was not accepted: nothing to ship"
    head = text.total_text(books.total(book.experiments, book.directs))
    over = books.over_baseline(book.experiments, book.directs)
    return f"{head}; {baseline_text(over[0])}" if over else head


def baseline_text(d: Direct) -> str:
    """`5.90x over baseline numpy [5.80, 6.00], 6 rounds`; a champion that loses is said to lose."""
    e = d.estimate
    loses = ": the baseline is faster" if e.low > 0 else ""
    return f"{numbers.speedup(e)} over {line(d.against)} {numbers.interval(e)}, {numbers.count(e.rounds, 'round')}{loses}"


def limits_text(book: Book) -> str:
    """Share of the physical limit that the champion reaches, by case; empty when the task gives none."""
    best = books.champion(book.experiments)
    shares = [f"{100 * c.limit_ns / c.subject_ns:.0f} % at {line(c.case)}" for c in best.verdict.cases if c.limit_ns] if best else []
    return f"of the measured limit of this machine: {', '.join(shares)}" if shares else ""


def pace_text(book: Book) -> str:
    """How many experiments were kept or refused with proof in an hour of judging, and how busy the judge was; empty before there are a
    few."""
    judged = [e for e in book.experiments[1:] if e.verdict.kind in (Kind.KEEP, Kind.REVERT, Kind.REJECT)]
    hours = sum(e.seconds for e in judged) / 3600
    busy = sum(e.seconds for e in book.experiments)
    if len(judged) < 3 or not hours:
        return ""
    pace = f"{len(judged) / hours:,.0f} keeps or refusals proven an hour{' of the GPU' if book.run.machine.gpu else ''}"
    return f"{pace}; the judge was busy {100 * min(1.0, busy / took):.0f} % of the time" if (took := books.elapsed(book)) else pace


def cost_text(book: Book) -> str:
    """Money and tokens, of the budget and for a kept per cent; empty when the proposers cost nothing."""
    dollars, tokens, unknown = proposers.paid(book)
    if not (dollars or tokens or unknown):
        return ""
    most = book.task.budget.dollars if book.task else None
    spent = f"${dollars:,.2f}{f' of ${most:,.2f}' if most else ''}, {tokens:,} tokens"
    blind = f", and {numbers.count(unknown, 'turn')} whose cost is unknown" if unknown else ""
    gain = sum(max(0.0, f.gain_percent) for f in proposers.facts(book) if f.dollars or f.unknown)
    each = f"; ${dollars / gain:,.2f} for a kept per cent" if gain and dollars and not unknown else ""
    return spent + blind + each


def _earned(book: Book) -> list[str]:
    return [words for idea in book.ideas if (words := idea_text(idea, books.keeps(book.experiments)))]


def idea_text(idea: Idea, kept: tuple[Experiment, ...]) -> str:
    """What an idea brought; empty while it is open and brought nothing."""
    gains = [numbers.gain(e.verdict.gain) for e in kept if e.idea == idea.n and e.verdict.gain]
    if gains:
        return f'{idea.n} "{line(idea.text)}" earned {", ".join(gains)}'
    return f'{idea.n} "{line(idea.text)}" is dead: {line(idea.why) or "no reason given"}' if idea.state == "dead" else ""


def keep_table(book: Book, columns: int = text.COLUMNS) -> list[str]:
    kept = books.keeps(book.experiments)
    return text.log(kept, columns) if kept else ["no experiment was kept"]


def code_text(book: Book) -> str:
    """The branch with the keeps and the command that merges it."""
    kept = books.tally(book.experiments).kept
    if not kept:
        return ""
    branch = line(book.run.branch)
    return f"branch {branch} ({numbers.count(kept, 'commit')})   git merge {text.shell_word(book.run.branch)}"


def _short(path: Path) -> str:
    """Relative to the working folder where that is shorter."""
    here = Path.cwd()
    return line(str(path.relative_to(here) if path.is_relative_to(here) else path))
