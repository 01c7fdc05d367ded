"""The proposers of a run: what each tried, kept, cost and earned, and how it stands. Pure; a table for people and rows for `--json`.

A cost that nobody knows is said to be unknown and never counted as nothing. What an agent's turns cost is read from the turns, so that
those which led to no experiment are counted too.
"""

from __future__ import annotations

from msgspec import Struct

from keepfast.model import Event, Experiment, Kind, TurnNote, percent
from keepfast.report import book as books
from keepfast.report import numbers
from keepfast.report.book import Book
from keepfast.report.escape import clip, fold, line, pad

ONCE = ("fresh", "takes-over", "counted")  # states of a switch that are said, and do not last
NEWEST = 12  # switches that are shown


class ProposerFact(Struct, frozen=True):
    """One proposer. `attempts` are its experiments and its turns that left no edit; `bad` the share of them that was of no use.

    `dollars` is what is known; with `unknown` turns beside it, what was paid is more, and there is no gain for a dollar.
    """

    name: str
    state: str
    why: str
    attempts: int
    bad: float
    kept: int
    reverted: int
    rejected: int
    suspect: int
    cheats: int
    turns: int
    fruitless: int
    tokens: int
    dollars: float
    unknown: int
    gain_percent: float
    percent_a_dollar: float | None


def facts(book: Book) -> tuple[ProposerFact, ...]:
    """Every proposer that tried something, in the order of their first attempts. A human's clearing is no proposal."""
    tried = books.tried(book.experiments)
    turns = [e.turn for e in book.notes if e.turn is not None]
    begun = [*((e.n, e.proposer) for e in tried), *((t.n, t.proposer) for t in turns)]
    names = dict.fromkeys(name for _, name in sorted(begun, key=lambda pair: pair[0]) if name != "human")
    return tuple(_fact(n, [e for e in tried if e.proposer == n], [t for t in turns if t.proposer == n], book.notes) for n in names)


def _fact(name: str, own: list[Experiment], turns: list[TurnNote], notes: tuple[Event, ...]) -> ProposerFact:
    kinds = [e.verdict.kind for e in own]
    fruitless = sum(t.outcome != "edited" for t in turns)
    attempts, rejected = len(own) + fruitless, kinds.count(Kind.REJECT)
    dollars, tokens = _paid(own, turns)
    unknown = sum(t.dollars is None and (t.tokens > 0 or t.outcome == "edited") for t in turns)
    gain = percent(sum(g.d for e in own if e.verdict.kept and (g := books.gain_of(e)) is not None))
    state, why = _standing(name, notes)
    return ProposerFact(
        name=name,
        state=state,
        why=why,
        attempts=attempts,
        bad=round((rejected + fruitless) / attempts, 6) if attempts else 0.0,
        kept=kinds.count(Kind.KEEP),
        reverted=kinds.count(Kind.REVERT),
        rejected=rejected,
        suspect=kinds.count(Kind.SUSPECT),
        cheats=sum(e.verdict.cheat for e in own),
        turns=len(turns),
        fruitless=fruitless,
        tokens=tokens,
        dollars=round(dollars, 6),
        unknown=unknown,
        gain_percent=round(gain, 6),
        percent_a_dollar=round(gain / dollars, 6) if dollars and not unknown else None,
    )


def _paid(own: list[Experiment], turns: list[TurnNote]) -> tuple[float, int]:
    if turns:
        return sum(t.dollars or 0.0 for t in turns), sum(t.tokens for t in turns)
    return sum(e.dollars for e in own), sum(e.tokens for e in own)


def _standing(name: str, notes: tuple[Event, ...]) -> tuple[str, str]:
    """What the roster said last of the proposer."""
    said = [s for e in notes if (s := e.switch) is not None and s.proposer == name and s.state not in ONCE]
    return (said[-1].state, said[-1].why) if said else ("on", "")


def paid(book: Book) -> tuple[float, int, int]:
    """Dollars and tokens of the run, turns that led to nothing included, and the number of turns whose cost is unknown."""
    rows = facts(book)
    return sum(r.dollars for r in rows), sum(r.tokens for r in rows), sum(r.unknown for r in rows)


# --------------------------------------------------------------------------------------------- text


HEAD = ("proposer", "tried", "bad", "kept", "rejected", "suspect", "tokens", "dollars", "gain", "a dollar")


def table(book: Book, columns: int) -> list[str]:
    """The proposers, one a line, and under them why one is not on."""
    rows = facts(book)
    cells = [HEAD, *(_cells(r) for r in rows)]
    wide = [max(len(c[i]) for c in cells) for i in range(len(HEAD))]
    lines = [clip("  ".join(_placed(c, w, i) for i, (c, w) in enumerate(zip(row, wide, strict=True))).rstrip(), columns) for row in cells]
    return [*lines, *(s for r in rows if r.why and r.state != "on" for s in _reason(r, columns))]


def _placed(cell: str, width: int, i: int) -> str:
    return pad(cell, width) if i == 0 else " " * (width - len(cell)) + cell


def _cells(r: ProposerFact) -> tuple[str, ...]:
    counts = (str(r.kept), str(r.rejected), str(r.suspect), f"{r.tokens:,}" if r.tokens else "-")
    rate = "-" if r.percent_a_dollar is None else f"{r.percent_a_dollar:+.1f} %"
    chained = "~" if r.kept > 1 else ""  # a sum of gains: no direct measurement
    gain = f"{chained}{numbers.bare_gain(-_log(r.gain_percent))}" if r.kept else "-"
    return (clip(line(r.name), 24), str(r.attempts), f"{100 * r.bad:.0f} %", *counts, dollars_text(r), gain, rate)


def _log(gain_percent: float) -> float:
    from math import log1p

    return log1p(gain_percent / 100)


def dollars_text(r: ProposerFact) -> str:
    """`$1.20`; `unknown`, or `$1.20 + ?` where some turns have no known price; `-` for what costs nothing."""
    if r.unknown:
        return f"${r.dollars:,.2f} + ?" if r.dollars else "unknown"
    return f"${r.dollars:,.2f}" if r.dollars else "-"


def _reason(r: ProposerFact, columns: int) -> list[str]:
    first, *rest = fold(f"{line(r.name)} is {r.state}: {line(r.why)}", columns - 2)
    return [f"  {first}", *(f"  {more}" for more in rest)]


def switches(notes: tuple[Event, ...], columns: int) -> list[str]:
    """The newest decisions of the roster, oldest first."""
    said = [(e.switch.n, e.text) for e in notes if e.switch is not None]
    return [clip(f"{n:>4}  {line(words)}", columns) for n, words in said[-NEWEST:]]
