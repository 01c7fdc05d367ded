"""vLLM: `bench latency`, `bench throughput`, `bench serve`, each with its JSON file."""

from __future__ import annotations

from collections.abc import Sequence

from keepfast import stats
from keepfast.engine.base import Cell
from keepfast.engine.readers.base import Asked, Reader, Reading, Table, Unreadable, maybe, milliseconds, number, numbers, served, whole


def _latency(tables: Sequence[Table], asked: Asked) -> tuple[Reading, ...]:
    """`latencies` are whole generations of one batch; a token's share of one is what a step takes, prefill included."""
    latencies = numbers(tables[-1], "latencies")
    return (Reading(Cell("generate", asked.context, asked.batch), stats.median(latencies) / max(1, asked.tokens), len(latencies)),)


def _throughput(tables: Sequence[Table], asked: Asked) -> tuple[Reading, ...]:
    """Prompt tokens are counted too."""
    table = tables[-1]
    per_token = number(table, "elapsed_time") / number(table, "total_num_tokens")
    return (Reading(Cell("served", asked.context, asked.batch), per_token, whole(table, "num_requests")),)


def _serve(tables: Sequence[Table], asked: Asked) -> tuple[Reading, ...]:
    table = tables[-1]
    completed, sent = whole(table, "completed"), maybe(table, "num_prompts")
    if table.get("failed") or (sent is not None and completed < sent):
        raise Unreadable(f"only {completed} of {sent or completed + int(table.get('failed') or 0):.0f} requests were completed")
    batch = round(maybe(table, "max_concurrency") or asked.batch)
    tpot, ttft = milliseconds(table, "median_tpot_ms"), milliseconds(table, "median_ttft_ms")
    return served(asked.context, batch, (1 / number(table, "output_throughput"), tpot, ttft, milliseconds(table, "p99_itl_ms")))


LATENCY = Reader("vllm-latency", lambda t: "latencies" in t and "avg_latency" in t, _latency)
THROUGHPUT = Reader("vllm-throughput", lambda t: "elapsed_time" in t and "total_num_tokens" in t, _throughput)
SERVE = Reader("vllm-serve", lambda t: "output_throughput" in t and "total_token_throughput" in t, _serve, served=True)
