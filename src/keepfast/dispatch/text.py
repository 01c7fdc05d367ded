"""A routing table in words, for a terminal and for a README. Pure: lines from records."""

from __future__ import annotations

import time

from keepfast.dispatch.records import Axes, Cell, Region, Row, Span, Table, Worst
from keepfast.model import percent
from keepfast.report.escape import line


def told(table: Table, artifact: str = "") -> list[str]:
    """The whole table: who against whom, cells in order, regions, and what it does not say."""
    head = [
        f"champion {table.champion} of run {table.run} against {', '.join(table.fallbacks)}; stock is {table.stock}",
        f"on {line(table.card)} ({day(table.when)}), {table.rounds} fresh rounds a comparison; {level(table)}",
        "",
    ]
    rows = [(cell_text(table, row.cell), "custom" if row.custom else "stock", *_numbers(row.worst), line(row.why)) for row in table.rows]
    titles = (" ".join(table.space.names) or "all", "route", "worst gain %", "at least", "at", "against", "why")
    return head + aligned([titles, *rows]) + ["", *regions(table), *_ends(table, artifact)]


def day(unix: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(unix))


def level(table: Table) -> str:
    terms = table.terms
    return f"{100 * (1 - terms.alpha):.0f} % sure of all routed cells together, margin {100 * terms.margin:.1f} %"


def regions(table: Table) -> list[str]:
    """One line a region; what is in none goes to stock."""
    if not table.regions:
        return [f"no region is certified: everything goes to {table.stock}"]
    lines = [f"custom where {where(r)}: {bounds(r.worst)}, {r.cells} cells measured in it" for r in table.regions]
    return [*lines, f"everything else goes to {table.stock}"]


def where(region: Region) -> str:
    return " and ".join(_span(s) for s in region.spans) or "anything"


def _span(span: Span) -> str:
    if span.low == span.high:
        return f"{span.axis} = {span.low}"
    steps = f" in steps of {span.multiple}" if span.multiple > 1 else ""
    return f"{span.axis} is {span.low} to {span.high}{steps}"


def bounds(worst: Worst) -> str:
    gain = f"{percent(worst.d):+.1f} %, at least {percent(worst.high):+.1f} %"
    return f"{gain} at {point(worst.at)} against {worst.fallback} in {worst.rounds} rounds, the weakest of all"


def point(at: Axes) -> str:
    return " ".join(f"{axis}={value}" for axis, value in at)


def cell_text(table: Table, cell: Cell) -> str:
    return " ".join(f"{name}={value}" for name, value in zip(table.space.names, cell, strict=True)) or "all"


def _numbers(worst: Worst | None) -> tuple[str, str, str, str]:
    if worst is None:
        return "", "", "", ""
    return f"{percent(worst.d):+.1f}", f"{percent(worst.high):+.1f}", point(worst.at), worst.fallback


def _ends(table: Table, artifact: str) -> list[str]:
    loose = free(table)
    lines = [f"not visible to a router, so won at all of: {', '.join(_hidden(table))}"] if table.space.hidden else []
    lines += [f"sizes that no axis explains, held to the range seen: {', '.join(loose)}"] if loose else []
    if not table.complete:
        lines.append("not complete: the time was over. What was measured counts: type the same command again")
    return lines + ([f"table    {artifact[:16]}   keepfast export"] if artifact and table.complete else [])


def _hidden(table: Table) -> list[str]:
    return [f"{name} {' '.join(map(str, values))}" for name, values in table.space.hidden]


def free(table: Table) -> list[str]:
    """Dimensions that vary and follow no axis."""
    return [f"{a.name}[{i}]" for a in table.arguments for i, d in enumerate(a.dims) if d.kind == "free" and d.low != d.high]


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def summary(row: Row) -> str:
    return "custom" if row.custom else f"stock ({line(row.why)})"
