"""The overhead benchmark on a short run: it counts right, and a second call goes on where the first one ended."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "overhead.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("overhead", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "overhead", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BLOCK", 10)
    monkeypatch.setattr(module, "FIRST", 20)
    monkeypatch.setattr(module, "REPEATS", 1)
    monkeypatch.setattr(module, "COMMANDS", (("show", "N", "--diff"),))
    return module


def test_a_run_that_is_cut_in_two(script: ModuleType, tmp_path: Path) -> None:
    where = script.repository(tmp_path)
    script.turn(where, 15, script.Meter(tmp_path / "samples.json"))  # killed in the middle of a block
    found = script.report(tmp_path, 40)
    assert [(s.n, s.experiments) for s in found.samples] == [(10, 9), (20, 5), (30, 10), (40, 10)]  # the start counts for nothing
    assert found.experiments == 40
    assert all(s.seconds > 0 and s.resident_kb > 0 for s in found.samples)
    assert found.ms_per_experiment == pytest.approx(1e3 * sum(s.seconds for s in found.samples[:2]) / 14)
    assert [r.what for r in found.reads] == ["show 40 --diff"]
    assert msgspec.json.decode(msgspec.json.encode(found), type=script.Report) == found


def test_proposals_apply_and_differ(script: ModuleType) -> None:
    sources = [script.source(n) for n in range(300)]
    assert len(set(sources)) == 300
    assert all(3000 < len(s) < 6000 for s in sources)
