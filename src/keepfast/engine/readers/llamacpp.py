"""llama.cpp: `llama-bench -o json` (an array) or `-o jsonl`. Nothing that it prints says whether graphs were used."""

from __future__ import annotations

from collections.abc import Sequence

from keepfast import stats
from keepfast.engine.base import Cell
from keepfast.engine.readers.base import Asked, Reader, Reading, Table, Unreadable, maybe, number, numbers


def _bench(tables: Sequence[Table], asked: Asked) -> tuple[Reading, ...]:
    """A test generates (`n_gen`) after `n_depth` tokens, or reads a prompt (`n_prompt`); one of both is neither a step nor a prefill."""
    return tuple(_test(table) for table in tables)


def _test(table: Table) -> Reading:
    prompt, made, depth = (round(maybe(table, name) or 0) for name in ("n_prompt", "n_gen", "n_depth"))
    samples = numbers(table, "samples_ns") if "samples_ns" in table else [number(table, "avg_ns")]
    seconds, count = stats.median(samples) / 1e9, len(samples)
    if made and prompt:
        return Reading(Cell(f"generate after {prompt}", depth, 1), seconds / made, count)
    if made:
        return Reading(Cell("decode", depth, 1), seconds / made, count)
    if prompt:
        return Reading(Cell(f"prefill after {depth}" if depth else "prefill", prompt, 1), seconds, count)
    raise Unreadable("a test with neither `n_prompt` nor `n_gen`")


BENCH = Reader("llama-bench", lambda t: "n_gen" in t and "n_prompt" in t and "avg_ns" in t, _bench)
