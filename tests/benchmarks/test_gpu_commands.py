"""`keepfast` as a user calls it, by benchmarks/gpu/commands.py: what counts as a result, and what becomes of a run when time is over."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError, UsageError
from keepfast.model import Fact
from tests.benchmarks.test_gpu_benchmarks import MACHINE, gpu_script

STAND_IN = """
import json, pathlib, signal, subprocess, sys, time
verb, place = sys.argv[1], pathlib.Path(sys.argv[-1])
if verb == "check":
    text = (place / "task.toml").read_text()
    print(json.dumps({"verdict": {"kind": "keep", "reason": "start", "detail": ""}, "title": text.splitlines()[1]}))
elif verb == "run":
    print("running", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, lambda *a: (print(json.dumps({"state": "stopped"})), sys.exit(0)))
    (place / "kernel.py").write_text("faster")
    subprocess.run(["git", "-C", str(place), "add", "-A"], check=True)
    subprocess.run(["git", "-C", str(place), "-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "a keep"], check=True)
    time.sleep(600)
elif verb == "e2e":
    print(json.dumps({"outcome": "passed"}) if "--aa" not in sys.argv else "")
    sys.exit(3 if "--aa" not in sys.argv else 5)
elif verb == "report":
    pathlib.Path(sys.argv[sys.argv.index("--output") + 1]).write_text("<html>")
    print("{}")
else:
    print(json.dumps({"verb": verb}))
"""

INTERRUPTED = """
import json, pathlib, sys, time
cells = pathlib.Path(sys.argv[-1]).parent / ".keepfast/engine"
if (cells / "plan/one.json").exists():
    print(json.dumps({"outcome": "refused"}))
    (cells / "plan/one.json").unlink()
    (cells / "plan").rmdir()
    sys.exit(3)
(cells / "plan").mkdir(parents=True)
(cells / "plan/one.json").write_text("{}")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def commands() -> ModuleType:
    return gpu_script("commands")


@pytest.fixture
def called(commands: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The script on a card that is not there, with a stand-in for keepfast."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setattr(commands, "KEEPFAST", (sys.executable, "-S", str(tmp_path / "stand_in.py")))
    monkeypatch.setattr(commands.nvidia, "choose", lambda card: SimpleNamespace(visible="GPU-fake", uuid="GPU-fake"))
    made = commands.Session(MACHINE, "580", (Fact("torch", "2"),), "now", "x")
    monkeypatch.setattr(commands, "session", lambda card: replace(made, date=f"{time.time()}"))
    monkeypatch.setattr(commands.bench, "RESULTS", tmp_path / "default")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return lambda *words: commands.main([*words, "--out", str(tmp_path / "out")])


def written(tmp_path: Path) -> list[dict[str, Any]]:
    return list(json.loads((tmp_path / "out/commands.json").read_text())["done"])


def test_checks_of_tasks_are_made_once(called: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("check", "--tasks", "softmax,llama/rms_norm", "--seconds", "200")
    assert called(*words) == 0
    assert [(d["verb"], d["task"], d["code"]) for d in written(tmp_path)] == [("check", "softmax", 0), ("check", "llama/rms_norm", 0)]
    assert "softmax: exit code 0" in capsys.readouterr().out
    first = written(tmp_path)
    assert called(*words) == 0
    assert written(tmp_path) == first
    assert called("check", "--seconds", "0") == 0
    assert written(tmp_path) == first


def test_a_proof_that_is_refused_is_a_result_and_a_machine_that_is_not_fit_is_none(called: Callable[..., int], tmp_path: Path) -> None:
    assert called("e2e", "--seconds", "200") == 0
    assert called("e2e-aa", "--seconds", "200") == 0
    assert [(d["verb"], d["code"]) for d in written(tmp_path)] == [("e2e", 3)]
    assert "exit code 5" in (tmp_path / "out/commands.jsonl").read_text()


def test_a_run_is_interrupted_when_time_is_over_and_leaves_its_lab_book(
    commands: ModuleType, called: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "room", lambda verb, clock: 4.0)
    assert called("run", "--seconds", "200") == 0
    assert [(d["verb"], d["code"], d["said"].strip()) for d in written(tmp_path)] == [("run", 0, '{"state": "stopped"}')]
    book = tmp_path / "out/run_softmax"
    assert {path.name for path in book.iterdir()} == {"run.json", "run.txt", "log.json", "report.json", "report.html", "keeps.diff"}
    assert "+faster" in (book / "keeps.diff").read_text()
    assert json.loads((book / "log.json").read_text()) == {"verb": "log"}


def test_an_interrupted_proof_is_no_failure_and_goes_on(
    called: Callable[..., int], commands: ModuleType, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(commands, "LEAST_S", commands.LEAST_S | {"e2e": 1.0})
    (tmp_path / "stand_in.py").write_text(INTERRUPTED)
    assert called("e2e", "--seconds", "7") == 0
    assert written(tmp_path) == []
    assert "failed" not in (tmp_path / "out/commands.jsonl").read_text()
    assert (tmp_path / "out/engine/plan/one.json").exists()
    assert called("e2e", "--seconds", "200") == 0
    assert [(d["verb"], d["code"]) for d in written(tmp_path)] == [("e2e", 3)]
    assert not (tmp_path / "out/engine/plan").exists()


def test_what_does_not_end_after_an_interrupt_is_killed(commands: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stubborn.py").write_text("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(600)\n")
    monkeypatch.setattr(commands, "KEEPFAST", (sys.executable, "-S", str(tmp_path / "stubborn.py")))
    monkeypatch.setattr(commands, "END_S", 0.5)
    began = time.monotonic()
    with pytest.raises(MachineError, match="interrupt"):
        commands.said(("run",), tmp_path, 2.0)
    assert time.monotonic() - began < 120


def test_nothing_is_begun_with_little_time(called: Callable[..., int], tmp_path: Path) -> None:
    assert called("check", "--seconds", "10") == 0
    assert written(tmp_path) == []


def test_a_run_has_a_budget_of_hours_and_an_unknown_task_is_named(commands: ModuleType, tmp_path: Path) -> None:
    assert commands.spoken("run", 240.0)[:3] == ("run", "--proposer", "deck")
    assert float(commands.spoken("run", 240.0)[4]) == pytest.approx(180 / 3600, abs=1e-4)
    assert commands.spoken("e2e-aa", 1.0) == ("e2e", "--aa", "--json")
    named = {task for verb in commands.VERBS for task in commands.wanted(verb)}
    assert {"softmax", "mla_decode", "llama/rms_norm", *commands.TASKS["e2e"]} <= named
    assert all((commands.bench.ROOT / "examples/gpu" / task / "task.toml").is_file() for task in named)
    with pytest.raises(UsageError, match="nothing"):
        commands.repository("nothing", tmp_path)
