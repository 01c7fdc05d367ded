"""SGLang: `bench_one_batch` and `bench_serving`, each with a JSON object a line."""

from __future__ import annotations

from collections.abc import Sequence

from keepfast.engine.base import Cell
from keepfast.engine.readers.base import Asked, Reader, Reading, Table, maybe, milliseconds, number, served, whole


def _one_batch(tables: Sequence[Table], asked: Asked) -> tuple[Reading, ...]:
    """Every line is a cell of its own: the decode step is a median over the output, the prefill is one sample."""
    found: list[Reading] = []
    for table in tables:
        context, batch, tokens = whole(table, "input_len"), whole(table, "batch_size"), whole(table, "output_len")
        found.append(Reading(Cell("prefill", context, batch), number(table, "prefill_latency")))
        if tokens > 1:
            found.append(Reading(Cell("decode", context, batch), number(table, "median_decode_latency"), tokens - 1))
    return tuple(found)


def _serving(tables: Sequence[Table], asked: Asked) -> tuple[Reading, ...]:
    table = tables[-1]
    context = round(maybe(table, "random_input_len") or asked.context)
    batch = round(maybe(table, "max_concurrency") or asked.batch)
    tpot, ttft = milliseconds(table, "median_tpot_ms"), milliseconds(table, "median_ttft_ms")
    return served(context, batch, (1 / number(table, "output_throughput"), tpot, ttft, milliseconds(table, "p99_itl_ms")))


def _is_serving(table: Table) -> bool:
    return "output_throughput" in table and ("total_output_tokens_retokenized" in table or "mean_e2e_latency_ms" in table)


ONE_BATCH = Reader("sglang-one-batch", lambda t: "prefill_latency" in t and "overall_throughput" in t, _one_batch)
SERVING = Reader("sglang-serving", _is_serving, _serving, served=True)
