"""What a reader makes of a benchmark's output, and small tools for JSON of unknown make.

Owns `Reading`, and the names of the readers. Must not know how a benchmark is started. A reader is two functions:
`fits(table)`, whether a JSON object is of this format; `read(tables, asked)`, the readings in it. A field that is absent or no number is
`Unreadable`, with its name: a benchmark whose format has changed is said to have changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from keepfast.engine.base import Cell
from keepfast.engine.laps import TAIL

NAMES = ("vllm-latency", "vllm-throughput", "vllm-serve", "sglang-one-batch", "sglang-serving", "trtllm-bench", "llama-bench", "plain")

Table = dict[str, Any]


class Unreadable(Exception):
    """The output is not of the format that it should have; the sentence says what is missing."""


class Reading(Struct, frozen=True):
    """One cell of one run. `seconds`: of a decode step, a prefill, or of one token at the throughput that was reached."""

    cell: Cell
    seconds: float
    steps: int = 1


class Asked(Struct, frozen=True):
    """What the command was started for: the cell, and the tokens to generate where the command says so."""

    context: int
    batch: int
    tokens: int = 0


class Reader(Struct, frozen=True):
    """`served`: measured through a server, with its scheduler."""

    name: str
    fits: Callable[[Table], bool]
    read: Callable[[Sequence[Table], Asked], tuple[Reading, ...]]
    served: bool = False


def number(table: Table, *path: str) -> float:
    """The positive number at `path`; Unreadable names it when there is none."""
    found = maybe(table, *path)
    if found is None:
        raise Unreadable(f"`{'.'.join(path)}` is missing or is no number above 0")
    return found


def maybe(table: Table, *path: str) -> float | None:
    value: Any = table
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) and value > 0 else None


def whole(table: Table, *path: str) -> int:
    return round(number(table, *path))


def numbers(table: Table, name: str) -> list[float]:
    values = table.get(name)
    if not isinstance(values, list) or not values or not all(isinstance(v, int | float) and math.isfinite(v) and v > 0 for v in values):
        raise Unreadable(f"`{name}` is no list of numbers above 0")
    return [float(v) for v in values]


def served(context: int, batch: int, times: tuple[float | None, float | None, float | None, float | None]) -> tuple[Reading, ...]:
    """Readings of a served benchmark: seconds a token at the throughput reached, of a token, to the first token, and p99 between tokens.

    The time to the first token is a cell of its own: what throughput gains must not be paid for there.
    """
    phases = ("served", "decode", "prefill", TAIL)
    return tuple(Reading(Cell(phase, context, batch), t) for phase, t in zip(phases, times, strict=True) if t is not None)


def milliseconds(table: Table, *path: str) -> float | None:
    found = maybe(table, *path)
    return None if found is None else found / 1000
