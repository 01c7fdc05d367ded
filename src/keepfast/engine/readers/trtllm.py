"""TensorRT-LLM: `trtllm-bench throughput|latency` with `--report_json`. Times per token only with `--streaming`."""

from __future__ import annotations

from collections.abc import Sequence

from keepfast.engine.readers.base import Asked, Reader, Reading, Table, maybe, milliseconds, number, served


def _report(tables: Sequence[Table], asked: Asked) -> tuple[Reading, ...]:
    """The p99 is of each request's mean time per token: milder than a p99 between tokens."""
    table = tables[-1]
    context = round(maybe(table, "request_info", "avg_input_length") or asked.context)
    rate = number(table, "performance", "system_output_throughput_tok_s")
    tpot = milliseconds(table, "streaming_metrics", "avg_tpot_ms")
    ttft = milliseconds(table, "streaming_metrics", "avg_ttft_ms")
    return served(context, asked.batch, (1 / rate, tpot, ttft, milliseconds(table, "streaming_metrics", "tpot_percentiles", "p99")))


REPORT = Reader("trtllm-bench", lambda t: "system_output_throughput_tok_s" in (t.get("performance") or {}), _report)
