"""Readers of benchmarks' outputs, against recorded formats; what a log says of graphs; what turns graphs off."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.engine import graphs_off
from keepfast.engine.base import Cell
from keepfast.engine.readers import choose, logs
from keepfast.engine.readers.base import NAMES, Asked, Reading, Unreadable

RECORDED = Path(__file__).parent / "recorded"
ASKED = Asked(1024, 8, 128)


def text(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def read(words: str, name: str = "", asked: Asked = ASKED) -> tuple[str, tuple[Reading, ...]]:
    reader, mine = choose.chosen(choose.tables(words), name)
    return reader.name, reader.read(mine, asked)


def seconds(readings: tuple[Reading, ...]) -> dict[str, float]:
    return {r.cell.name: r.seconds for r in readings}


FILES = {
    "vllm-latency.json": {"generate 1024 x 8": 0.6478 / 128},
    "vllm-throughput.json": {"served 1024 x 8": 9.835 / 82000},
    "vllm-serve.json": {
        "served 1024 x 16": 1 / 2424.8, "decode 1024 x 16": 0.00642, "prefill 1024 x 16": 0.0581, "tail 1024 x 16": 0.00805,
    },
    "sglang-one-batch.jsonl": {"prefill 1024 x 4": 0.0612, "decode 1024 x 4": 0.00731, "prefill 1024 x 8": 0.1203},
    "sglang-serving.jsonl": {
        "served 2048 x 16": 1 / 1088.6, "decode 2048 x 16": 0.014, "prefill 2048 x 16": 0.1889, "tail 2048 x 16": 0.0413,
    },
    "trtllm-bench.json": {"served 128 x 8": 1 / 5371.8, "decode 128 x 8": 0.01147, "prefill 128 x 8": 0.0415, "tail 128 x 8": 0.0124},
    "llama-bench.json": {"prefill 512 x 1": 0.0717452, "decode 4096 x 1": 1.0717612 / 128},
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_recorded_output(name: str) -> None:
    reader, readings = read(text(name))
    assert reader == name.split(".")[0], "found from its fields"
    assert seconds(readings) == pytest.approx(FILES[name])
    assert read(text(name), reader)[1] == readings


def test_every_reader_has_a_name_that_a_task_may_give() -> None:
    assert sorted(r.name for r in choose.ALL) == sorted(NAMES)
    assert {n.split(".")[0] for n in FILES} == set(NAMES) - {"plain"}


def test_the_plain_format() -> None:
    words = '{"phase": "decode", "context": 8192, "batch": 8, "seconds": 0.0048, "steps": 64}\n'
    assert read(words) == ("plain", (Reading(Cell("decode", 8192, 8), 0.0048, 64),))


def test_json_amid_a_log_is_found() -> None:
    words = f"starting\n[warning] not JSON {{\n{text('llama-bench.json')}\ndone {{}}\n"
    assert read(words)[0] == "llama-bench"
    one_line = "loaded\n" + text("sglang-one-batch.jsonl") + "bye\n"
    assert len(read(one_line)[1]) == 3


def test_requests_that_failed_are_no_result() -> None:
    with pytest.raises(Unreadable, match="only 98 of 100 requests"):
        read(text("vllm-serve.json").replace('"completed": 100', '"completed": 98'))


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("vllm-latency.json", "[0.6471", '["a"', "`latencies` is no list of numbers"),
        ("vllm-throughput.json", "82000", "0", "`total_num_tokens` is missing"),
        ("sglang-one-batch.jsonl", '"median_decode_latency": 0.00731', '"median_decode_latency": -1', "`median_decode_latency`"),
        ("trtllm-bench.json", "5371.8", '"fast"', "system_output_throughput_tok_s"),
        ("llama-bench.json", '"n_gen": 128', '"n_gen": 0', "neither"),
    ],
)
def test_a_field_that_is_no_number_is_named(name: str, old: str, new: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        read(text(name).replace(old, new))


@pytest.mark.parametrize("words", ["", "hello", '{"a": 1}', "[1, 2]", "{" * 5000, '{"latencies": [1]}'])
def test_what_is_of_no_format_is_said(words: str) -> None:
    with pytest.raises(Unreadable, match="holds no JSON"):
        read(words)


def test_an_unknown_reader_has_a_nearest() -> None:
    with pytest.raises(Unreadable, match="Did you mean `vllm-serve`"):
        read(text("vllm-serve.json"), "vllm-server")


# ------------------------------------------------------------------------------------------------ graphs


def test_an_engines_own_counts() -> None:
    assert logs.graphs(text("vllm.log")) == logs.Counted(190 / 200, 200)
    assert logs.graphs(text("sglang.log")) == logs.Counted(3 / 4, 4)
    assert logs.graphs("Graph capturing finished in 8 secs") == logs.Counted(None)


def test_a_sentence_that_turns_graphs_off() -> None:
    said = "WARNING Enforce eager set, disabling torch.compile and CUDAGraphs. This is equivalent to setting -cc.mode=none"
    assert logs.graphs(f"hello\n{said}\n") == logs.Counted(0.0, 0, said)


@pytest.mark.parametrize(
    "argv",
    [
        ("vllm", "bench", "latency", "--enforce-eager"),
        ("vllm", "serve", "m", "--enforce_eager"),
        ("vllm", "serve", "m", "-O0"),
        ("vllm", "serve", "m", "-O", "0"),
        ("vllm", "serve", "m", "-cc.cudagraph_mode=NONE"),
        ("vllm", "serve", "m", "--compilation-config.cudagraph_mode", "PIECEWISE"),
        ("vllm", "serve", "m", "--compilation-config", '{"cudagraph_mode": "NONE"}'),
        ("vllm", "serve", "m", '--compilation-config={"level": 0, "x": 1}'),
        ("python", "-m", "sglang.bench_one_batch", "--disable-cuda-graph"),
        ("python", "-m", "sglang.bench_one_batch", "--disable-cuda-graph-padding"),
        ("python", "-m", "sglang.launch_server", "--cuda-graph-backend-decode", "disabled"),
    ],
)
def test_flags_that_turn_graphs_off_are_named(argv: tuple[str, ...]) -> None:
    found = graphs_off.named(argv)
    assert len(found) == 1
    assert found[0].replace(" ", "=") in "=".join(argv).replace(" ", "=")


def test_environment_that_turns_graphs_off_is_named() -> None:
    assert graphs_off.named((), (("GGML_CUDA_DISABLE_GRAPHS", "0"),)) == ("GGML_CUDA_DISABLE_GRAPHS=0",)
    assert graphs_off.named((), (("TORCHDYNAMO_DISABLE", "1"), ("CUDA_LAUNCH_BLOCKING", "0"))) == ("TORCHDYNAMO_DISABLE=1",)


def test_other_flags_are_left_alone() -> None:
    argv = (
        "vllm",
        "serve",
        "m",
        "-O3",
        "--compilation-config",
        '{"cudagraph_mode": "FULL_AND_PIECEWISE", "level": 3}',
        "--max-num-seqs",
        "0",
    )
    assert graphs_off.named(argv, (("PATH", "0"),)) == ()
