"""keepfast's own plain format, for benchmarks without a reader: one JSON object a cell.

{"phase": "decode", "context": 8192, "batch": 8, "seconds": 0.0048, "steps": 64}
"""

from __future__ import annotations

from collections.abc import Sequence

from keepfast.engine.base import Cell
from keepfast.engine.readers.base import Asked, Reader, Reading, Table, maybe, number


def _cells(tables: Sequence[Table], asked: Asked) -> tuple[Reading, ...]:
    return tuple(_cell(table, asked) for table in tables)


def _cell(table: Table, asked: Asked) -> Reading:
    context, batch = round(maybe(table, "context") or asked.context), round(maybe(table, "batch") or asked.batch)
    return Reading(Cell(str(table.get("phase", "decode")), context, batch), number(table, "seconds"), round(maybe(table, "steps") or 1))


PLAIN = Reader("plain", lambda t: "seconds" in t and "phase" in t, _cells)
