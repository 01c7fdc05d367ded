"""Which signatures a slot takes, and how a plan is made: without torch."""

import importlib.util
import sys
from pathlib import Path

import msgspec
import pytest

from keepfast.engine import best, slots
from keepfast.engine.base import STOCK, Account, Cell, Lap, Likeness
from keepfast.engine.torch_trace import ran
from keepfast.engine.transformers import Arm, Fill, Plan, TransformersEngine, described, named_models
from keepfast.errors import MachineError, TaskError, UsageError
from keepfast.task.signature import parse

CELL = Cell("decode", 64, 1)


@pytest.mark.parametrize("name", slots.NAMES)
def test_a_slot_takes_the_signature_that_it_documents(name):
    kind = slots.kind(name)
    taken = slots.fit(kind, parse(kind.signature), "t", {})
    assert [t.name for t in taken if t.given] == [o.name for o in kind.offers if o.must]


@pytest.mark.parametrize(
    ("slot", "signature", "said"),
    [
        ("rms_norm", "f(Tensor input, Tensor weight, float eps) -> Tensor", "takes `eps`, which the slot does not give"),
        ("rms_norm", "f(Tensor input, Tensor weight) -> Tensor", "does not take `epsilon`"),
        (
            "rms_norm",
            "f(Tensor input, Tensor weight, Tensor epsilon) -> Tensor",
            "`epsilon` is a Tensor in the signature, and the slot gives a float",
        ),
        ("rms_norm", "f(Tensor(a!) input, Tensor weight, float epsilon) -> Tensor", "`input` must not be marked"),
        ("add_rms_norm", "f(Tensor(a!) input, Tensor residual, Tensor weight, float epsilon) -> ()", "`residual` must be marked"),
        ("mlp_activation", "f(Tensor gate, Tensor up) -> (Tensor, Tensor)", "returns 2 new tensors, and the slot wants one new tensor"),
        ("attention_decode", "f(Tensor q, Tensor k, Tensor v, float scale) -> Tensor", "does not take `lengths`"),
    ],
)
def test_what_does_not_fit_is_named(slot, signature, said):
    with pytest.raises(TaskError, match=said) as caught:
        slots.fit(slots.kind(slot), parse(signature), "norm", {})
    assert f"slot {slot}, task norm" in caught.value.where
    assert "The slot takes: " in caught.value.next_step


def test_what_the_model_needs_is_named_with_the_signature_that_has_it():
    kind = slots.kind("attention_decode")
    with pytest.raises(TaskError, match="the model needs it: GptOssAttention has one a head") as caught:
        slots.fit(kind, parse(kind.signature), "t", {"sinks": "GptOssAttention has one a head"})
    shown = caught.value.next_step.removeprefix("The slot takes: ")
    assert "Tensor sinks" in shown
    assert slots.fit(kind, parse(shown), "t", {"sinks": "..."})[-1] == slots.Taken("sinks", True)


def test_an_argument_with_a_default_is_the_tasks_own():
    taken = slots.fit(slots.kind("mlp_activation"), parse("f(Tensor gate, Tensor up, bool fast=True) -> Tensor"), "t", {})
    assert taken[-1] == slots.Taken("fast", False, True)


def test_an_unknown_slot_says_the_nearest():
    with pytest.raises(TaskError, match="Did you mean `rms_norm`"):
        slots.kind("rmsnorm")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device": "tpu"}, "there is no device `tpu`"),
        ({"attention": "spda"}, "Did you mean `sdpa`"),
        ({"compile": "fast"}, "there is no compile"),
        ({"fill": "zeros"}, "there is no fill"),
        ({"cells": ()}, "at least one of each"),
        ({"cells": (Cell("train", 64, 1),)}, "phase of a cell"),
        ({"arms": (Arm("kept"),)}, "arms are kept"),
        ({"arms": (Arm(STOCK), Arm("a"), Arm("a"))}, "arms are stock, a, a"),
        ({"arms": (Arm(STOCK, (Fill("rms_norm", "/x.py", "f", "f(Tensor input) -> Tensor", "t"),)),)}, "arms are stock"),
    ],
)
def test_a_plan_that_means_nothing_is_refused(change, said):
    with pytest.raises(UsageError, match=said):
        Plan(**({"model": "tiny", "cells": (CELL,)} | change))


def test_a_model_is_a_name_a_table_or_a_folder(tmp_path):
    assert described("llama-3.1-8b-16")["layers"] == 16
    assert described('{"base": "llama-3.1-8b", "layers": 4}')["heads"] == 32
    (tmp_path / "config.json").write_text("{}")
    assert described(str(tmp_path)) == tmp_path
    for text, said in (
        ("llama-3.1-8", "Did you mean"),
        ("{]", "is not JSON"),
        ('{"layers": 2}', "no `architecture`"),
        ('{"base": "x"}', "no base"),
    ):
        with pytest.raises(TaskError, match=said):
            described(text)
    assert all("architecture" in described(name) for name in named_models())


def _interpreter(folder: Path, body: str) -> str:
    """Something that is called like a Python and writes what `body` says."""
    script = folder / "python"
    script.write_text(f"#!{sys.executable}\nimport sys, time\nasked, told = sys.argv[-2:]\n{body}\n")
    script.chmod(0o755)
    return str(script)


def test_an_interpreter_without_torch_is_a_machine_error_that_says_what_to_install(tmp_path):
    python = _interpreter(tmp_path, "sys.exit('no such module')")
    with pytest.raises(MachineError, match="status 1 and no account:\nno such module") as caught:
        TransformersEngine(Plan("tiny", (CELL,)), python=python).account(1)
    assert "pip install torch" in caught.value.next_step
    with pytest.raises(MachineError, match="does not start"):
        TransformersEngine(Plan("tiny", (CELL,)), python=str(tmp_path / "none")).account(1)


@pytest.mark.parametrize(("kind", "raised"), [("task", TaskError), ("machine", MachineError)])
def test_what_the_process_could_not_do_arrives_as_it_was_said(tmp_path, kind, raised):
    failure = f'{{"failure": {{"kind": "{kind}", "what": "w", "where": "x", "next_step": "n"}}}}'
    body = f"print('keepfast: loading')\nwith open(told, 'w') as out:\n    out.write({failure!r})"
    lines = []
    with pytest.raises(raised, match="x: w\n  n"):
        TransformersEngine(Plan("tiny", (CELL,)), python=_interpreter(tmp_path, body), said=lines.append).account(1)
    assert lines == ["loading"]


def test_a_process_that_never_ends_is_ended(tmp_path):
    python = _interpreter(tmp_path, "time.sleep(600)")
    with pytest.raises(MachineError, match="no account after 1 s"):
        TransformersEngine(Plan("tiny", (CELL,)), python=python, limit_s=1.0).account(1)


def _kernel(name: str, microseconds: float, correlation: int, node: int = 0) -> dict:
    args = {"correlation": correlation} | ({"graph node id": node} if node else {})
    return {"ph": "X", "cat": "kernel", "name": name, "dur": microseconds, "args": args}


def test_a_kernel_is_in_a_graph_by_its_node_or_by_what_launched_it():
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "dur": 3, "args": {"correlation": 7}}
    eager = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 3, "args": {"correlation": 8}}
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy", "dur": 900, "args": {"correlation": 8}}
    events = [launch, eager, copy, _kernel("a", 60, 7), _kernel("a", 30, 7), _kernel("b", 5, 9, node=4), _kernel("c", 5, 8), {"ph": "M"}]
    found = ran(events, 1)
    assert found.share == pytest.approx(0.95)
    assert dict(found.launches) == {"a": 2, "b": 1, "c": 1}
    assert dict(found.seconds)["a"] == pytest.approx(90e-6)


def test_a_trace_without_kernels_is_no_measurement():
    with pytest.raises(MachineError, match="saw no kernel"):
        ran([{"ph": "X", "cat": "cpu_op", "name": "aten::mm"}], 1)


def test_the_ranking_compares_within_rounds():
    laps = tuple(
        Lap(CELL.name, arm, n, s) for n in range(3) for arm, s in ((STOCK, 2.0 + n), ("quick", 1.0 + n / 2), ("slow", 4.0 + 2 * n))
    )
    alike = (Likeness(CELL.name, "quick", STOCK, 1e-4, 1e-3, 1.0, 8),)
    account = Account("transformers", "m", "x", (), (), (STOCK, "quick", "slow"), (CELL,), (), laps, (), alike)
    first, second, last = best.ranked(account)
    assert (first.arm, first.ratio, first.rounds, first.kl_mean) == ("quick", pytest.approx(2.0), 3, 1e-4)
    assert first.sd == pytest.approx(0.0, abs=1e-12)  # the drift of the machine is common to a round
    assert (second.arm, last.arm) == (STOCK, "slow")


def test_every_configuration_is_an_arm_once_and_stock_is_first():
    names = [arm.name for arm in best.configurations()]
    assert names[0] == STOCK
    assert len(set(names)) == len(names)
    assert {"sdpa default", "sdpa max-autotune", "flex_attention", "sdpa_gqa"} <= set(names)


def test_the_page_about_slots_says_what_the_slots_say():
    page = (Path(__file__).parents[2] / "docs/engine.md").read_text(encoding="utf-8")
    for kind in slots.KINDS:
        part = page.partition(f"### `{kind.name}`")[2].partition("###")[0]
        assert f"    {kind.signature}\n" in part
        assert all(f"| `{o.name}` | {o.means}" in part for o in kind.offers)
    assert all(f'`"{name}"`' in page for name in named_models())


def test_the_search_goes_on_after_a_line_that_was_cut_short(tmp_path, monkeypatch):
    path = Path(__file__).parents[2] / "benchmarks/e2e/best_config.py"
    spec = importlib.util.spec_from_file_location("best_config", path)
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "best_config", script)
    spec.loader.exec_module(script)
    store = tmp_path / "best_config.jsonl"
    account = Account("transformers", "m", "x", (), (), (STOCK,), (CELL,), (), (Lap(CELL.name, STOCK, 0, 1.0),), (), ())
    line = msgspec.json.encode(script.Item("one", account)) + b"\n"
    store.write_bytes(line + line[:40])
    assert script.read(store) == {"one": script.Item("one", account)}
    assert store.read_bytes() == line
    assert script._cells("8192x8,1024x1", "decode") == [Cell("decode", 8192, 8), Cell("decode", 1024, 1)]
