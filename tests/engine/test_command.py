"""The engine `command`: arms, order, limits, what becomes of a failure; with a benchmark that takes no time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from keepfast.engine import process
from keepfast.engine.base import STOCK, Account, Cell
from keepfast.engine.command import CommandArm, CommandEngine, CommandPlan
from keepfast.engine.proof import Bounds, prove
from keepfast.errors import MachineError, TaskError
from keepfast.model.proof import Outcome, Why

BENCH = str(Path(__file__).with_name("bench.py"))
ENV = (("PATH", os.defpath),)
ACCEPT = ("outputs", "memory")


def plan(patched: dict[str, str], **change: object) -> CommandPlan:
    made = CommandPlan(
        argv=(sys.executable, BENCH, "0.01", "{context}", "{batch}"),
        cells=(Cell("decode", 1024, 1), Cell("decode", 8192, 4)),
        arms=(CommandArm(STOCK), CommandArm("norm", (), tuple(patched.items()), "/kept", "norm")),
        env=ENV,
        model="a model",
        machine="a machine",
        engaged="kernel engaged",
        limit_s=60.0,
    )
    return replace(made, **change)


def measured(made: CommandPlan, rounds: int = 3) -> Account:
    return CommandEngine(made, rng=Random(3)).account(rounds)


def test_a_faster_command_passes() -> None:
    said: list[str] = []
    account = CommandEngine(plan({"FACTOR": "0.8", "KERNEL": "{kernel}"}), rng=Random(3), said=said.append).account(3)
    assert account.cells == (Cell("decode", 1024, 1), Cell("decode", 8192, 4))
    assert len(account.laps) == 2 * 2 * 3
    assert len(said) == 12
    orders = {tuple(line.split(", ")[1] for line in said[i : i + 2]) for i in range(0, 12, 2)}
    assert orders == {(STOCK, "norm"), ("norm", STOCK)}, "arms are shuffled"
    proof = prove(account, Bounds(unshown=ACCEPT))
    assert proof.passed, proof.reasons
    assert proof.evidence == "engine with graphs"
    assert proof.whole is not None
    assert proof.whole.speedup == pytest.approx(1.25, rel=0.01)
    assert "graphs: share of steps, as the engine counts them itself" in proof.notes


def test_outputs_are_not_shown_by_a_command() -> None:
    proof = prove(measured(plan({"FACTOR": "0.8", "KERNEL": "1"})), Bounds(unshown=("memory",)))
    assert proof.outcome is Outcome.REFUSED
    assert Why.NOT_SHOWN in {r.why for r in proof.reasons}


def test_graphs_off_in_the_patched_arm_are_seen_in_its_log() -> None:
    proof = prove(measured(plan({"FACTOR": "0.5", "GRAPHS": "False", "KERNEL": "1"})), Bounds(unshown=ACCEPT))
    assert Why.GRAPHS_OFF in {r.why for r in proof.reasons}


def test_an_engine_that_counts_no_graphs_shows_none() -> None:
    account = measured(plan({"FACTOR": "0.5", "KERNEL": "1"}, env=(*ENV, ("GRAPHS", ""))))
    assert {g.share for g in account.graphs} == {None}
    assert Why.NOT_SHOWN in {r.why for r in prove(account, Bounds(unshown=ACCEPT)).reasons}
    assert prove(account, Bounds(unshown=(*ACCEPT, "graphs"))).evidence == "engine, graphs not shown"


def test_a_kernel_that_says_nothing_never_ran() -> None:
    proof = prove(measured(plan({"FACTOR": "0.5"})), Bounds(unshown=ACCEPT))
    assert Why.NOT_ENGAGED in {r.why for r in proof.reasons}


def test_the_same_command_twice_is_no_gain() -> None:
    made = plan({"KERNEL": "1"})
    account = measured(made, 4)
    proof = prove(account, Bounds(worst_cell=0.05, unshown=ACCEPT))
    assert proof.whole is not None
    assert abs(proof.whole.d) < 0.002


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"argv": ("vllm", "bench", "latency", "--enforce-eager")}, "--enforce-eager"),
        ({"env": (("GGML_CUDA_DISABLE_GRAPHS", "1"),)}, "GGML_CUDA_DISABLE_GRAPHS=1"),
        ({"arms": (CommandArm(STOCK), CommandArm("norm", ("--disable-cuda-graph",)))}, "arm `norm`: --disable-cuda-graph"),
    ],
)
def test_what_turns_graphs_off_is_refused_and_named_before_anything_runs(change: dict[str, object], said: str) -> None:
    with pytest.raises(TaskError) as refused:
        measured(plan({}, **change))
    assert said in refused.value.what


def test_on_a_cpu_there_are_no_graphs_to_turn_off() -> None:
    made = plan({"FACTOR": "0.8", "KERNEL": "1"}, env=(*ENV, ("CUDA_LAUNCH_BLOCKING", "1")), device="cpu")
    proof = prove(measured(made), Bounds(memory=1.0, unshown=("outputs",)))
    assert proof.passed
    assert proof.evidence == "engine on a CPU"
    assert next(c for c in proof.checks if c.name == "memory").state == "ok", "the processes' own memory"


def test_a_patched_arm_that_falls_is_refused_and_not_started_again() -> None:
    said: list[str] = []
    account = CommandEngine(plan({"FALL": "1"}), rng=Random(1), said=said.append).account(3)
    proof = prove(account, Bounds(unshown=ACCEPT))
    assert proof.outcome is Outcome.REFUSED
    assert Why.CRASHED in {r.why for r in proof.reasons}
    assert "ended with status 3: CUDA error: an illegal memory access" in proof.reasons[0].said
    assert {lap.arm for lap in account.laps} == {STOCK}


def test_a_stock_arm_that_falls_is_no_verdict() -> None:
    with pytest.raises(MachineError, match="ended with status 3"):
        measured(plan({}, env=(*ENV, ("FALL", "1"))))
    with pytest.raises(MachineError, match="cannot be started"):
        measured(plan({}, argv=("no-such-program-here",)))


def test_an_output_without_numbers_says_what_it_holds() -> None:
    with pytest.raises(TaskError, match="holds no JSON"):
        measured(plan({}, argv=(sys.executable, "-c", "print('hello')")))
    with pytest.raises(TaskError, match="of the format `vllm-serve`"):
        measured(plan({}, reader="vllm-serve"))


def test_a_result_file_is_read_before_the_output() -> None:
    code = "import json, sys; print('{}'); open(sys.argv[1], 'w').write(json.dumps({'avg_latency': 1, 'latencies': [0.5, 0.5]}))"
    argv = (sys.executable, "-c", code, "{out}", "--input-len", "{context}", "--output-len", "50")
    account = measured(plan({}, argv=argv))
    assert {c.name for c in account.cells} == {"generate 1024 x 1", "generate 8192 x 4"}
    assert {lap.seconds for lap in account.laps} == {0.01}


def test_a_command_without_places_for_cells_is_started_once_a_round() -> None:
    account = measured(plan({"KERNEL": "1"}, argv=(sys.executable, BENCH, "0.01", "77", "2")))
    assert [c.name for c in account.cells] == ["decode 77 x 2"]
    assert len(account.laps) == 6


# ------------------------------------------------------------------------------------------------ a server


SERVER = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.environ.get("FACTOR", "1").encode())
    def log_message(self, *args): pass
if os.environ.get("FALL"): raise SystemExit("out of memory")
print("Decode batch, #running-req: 1, cuda graph: True, gen throughput (token/s): 1.0", flush=True)
if os.environ.get("KERNEL"): print("kernel engaged", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""
CLIENT = """
import json, sys, urllib.request
factor = float(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/").read())
print(json.dumps({"completed": 4, "num_prompts": 4, "output_throughput": 1000 / factor, "total_token_throughput": 2000 / factor,
                  "median_tpot_ms": 5 * factor, "median_ttft_ms": 50, "p99_itl_ms": 9 * factor, "max_concurrency": 4}))
"""


def served(patched: dict[str, str]) -> CommandPlan:
    argv, server = (sys.executable, "-c", CLIENT, "{port}"), (sys.executable, "-c", SERVER, "{port}")
    return plan(patched, argv=argv, server=server)


def test_a_server_is_started_for_every_arm_and_its_log_is_read() -> None:
    account = measured(served({"FACTOR": "0.8", "KERNEL": "1"}))
    assert {c.phase for c in account.cells} == {"served", "decode", "prefill", "tail"}
    assert {g.share for g in account.graphs} == {1.0}
    proof = prove(account, Bounds(unshown=ACCEPT))
    assert proof.passed, proof.reasons
    assert proof.evidence == "server with graphs"
    assert {c.cell.split()[0]: c.guards_only for c in proof.cells} == {"served": False, "decode": False, "prefill": False, "tail": True}


def test_a_server_that_falls_with_the_kernel_is_refused_with_its_last_words() -> None:
    account = measured(served({"FALL": "1"}))
    assert "ended before it was ready: out of memory" in account.notes[0]
    assert Why.CRASHED in {r.why for r in prove(account, Bounds(unshown=ACCEPT)).reasons}


# ------------------------------------------------------------------------------------------------ the process


def test_at_the_limit_the_whole_group_ends(tmp_path: Path) -> None:
    ended = process.run((sys.executable, BENCH, "1", "1", "1"), {"PATH": os.defpath, "HANG": "1"}, str(tmp_path), 1.5)
    assert ended.why == "did not end within 1.5 s"
    child = int(ended.stdout.split("child ")[1].split()[0])
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] in ("Z", "X")


def test_what_a_process_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); print('child', p.pid)"
    ended = process.run((sys.executable, "-c", code), {"PATH": os.defpath}, str(tmp_path), 60.0)
    assert ended.why == ""
    stat = Path(f"/proc/{int(ended.stdout.split('child ')[1])}/stat")
    assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] in ("Z", "X")


def test_output_is_kept_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST", 1000)
    env = {"PATH": os.defpath, "FLOOD": "200000"}
    ended = process.run((sys.executable, BENCH, "1", "1", "1"), env, str(tmp_path), 60.0)
    assert (len(ended.stdout), ended.cut, ended.why) == (1000, True, "")
    assert ended.peak_bytes > 1 << 20
