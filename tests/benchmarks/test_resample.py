"""The resampling, on recordings whose truth is known because they are made here."""

from __future__ import annotations

import importlib.util
import math
import random
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from keepfast.model import Calibration, CaseRound, Machine, Phase, Round

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "resample.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("resample", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["resample"] = module
    spec.loader.exec_module(module)
    return module


def synthetic(script: ModuleType, changes: int = 60, sigma: float = 0.006, layout: float = 0.0, offset: float = 0.0) -> object:
    """An A/A run: every change has an offset of its own from N(offset, layout), every round noise from N(0, sigma)."""
    chance = random.Random(3)
    calibration = Calibration("m", sigma, offset, layout, (("a", sigma), ("b", sigma)), 12, 0.0, 3.0, 0.0)
    phases = [Phase.SCREEN, *[Phase.TEST] * 8, *[Phase.CONFIRM] * 6]

    def measured(phase: Phase, here: float) -> Round:
        a, b = (here + chance.gauss(0, sigma) for _ in range(2))
        return Round(phase, here + chance.gauss(0, sigma), (CaseRound("a", a, 1e6, 1e6), CaseRound("b", b, 1e6, 1e6)))

    def change(k: int) -> object:
        here = chance.gauss(offset, layout)
        return script.Evaluation(calibration, tuple(measured(p, here) for p in phases), f"no-op {k}")

    machine = Machine("made up", 2, "6.1", "gcc 12.2", "walls")
    return script.Recording(machine, tuple(change(k) for k in range(changes)), "synthetic")


def write(recording: object, path: Path) -> Path:
    path.write_bytes(msgspec.json.encode(recording))
    return path


def test_a_quiet_recording_gives_no_false_keeps(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "resample.json"
    path = write(synthetic(script), tmp_path / "aa.json")
    assert script.main([str(path), "--decisions", "3000", "--out", str(out)]) == 0
    found = msgspec.json.decode(out.read_bytes(), type=script.Report)
    assert [r.method for r in found.results] == ["pooled", "by change"]
    assert all(r.decisions == sum(r.reasons.values()) == 3000 for r in found.results)
    assert all(r.false_keeps <= 3 and r.rate <= r.upper_95 for r in found.results)
    assert (found.evaluations, found.rounds, found.measured_on.cpu) == (60, 900, "made up")
    printed = capsys.readouterr().out
    assert "made up, 2 cores" in printed
    assert "0 false keeps in 3000 decisions: 0.00000, at most 0.00100 at 95 %" in printed


def test_the_same_seed_gives_the_same_decisions(script: ModuleType) -> None:
    noise = script.by_change(synthetic(script, 10))
    assert script.resample(noise, "by change", 300, 4) == script.resample(noise, "by change", 300, 4)
    assert script.resample(noise, "by change", 300, 4) != script.resample(noise, "by change", 300, 5)


def test_a_harness_that_prefers_the_subject_is_found_out(script: ModuleType, tmp_path: Path) -> None:
    """The offset is in the rounds but not in the calibration: every second change would be kept, and the script fails."""
    recording = synthetic(script, sigma=0.002, offset=-0.006)
    honest = [msgspec.structs.replace(e, calibration=msgspec.structs.replace(e.calibration, offset=0.0)) for e in recording.evaluations]
    path = write(msgspec.structs.replace(recording, evaluations=tuple(honest)), tmp_path / "aa.json")
    assert script.main([str(path), "--decisions", "300", "--out", str(tmp_path / "out.json")]) == 1


def test_changes_that_differ_are_kept_apart_by_change_only(script: ModuleType) -> None:
    """Layout as large as ten SDs, and a calibration that does not know: pooling hides it, by change it shows."""
    recording = synthetic(script, sigma=0.001, layout=0.01)
    blind = [msgspec.structs.replace(e, calibration=msgspec.structs.replace(e.calibration, layout=0.0)) for e in recording.evaluations]
    recording = msgspec.structs.replace(recording, evaluations=tuple(blind))
    pooled = script.resample(script.pooled(recording), "pooled", 400, 1)
    by_change = script.resample(script.by_change(recording), "by change", 400, 1)
    assert by_change.rate > 0.2 > 0.02 > pooled.rate


def test_offsets_that_are_chance_alone_are_shrunk_away(script: ModuleType) -> None:
    noise = script.by_change(synthetic(script, 200, sigma=0.006))
    spread = math.sqrt(sum(row[0] ** 2 for row in noise.offsets) / len(noise.offsets))
    assert spread < 0.5 * 0.006 / math.sqrt(15)
    real = script.by_change(synthetic(script, 200, sigma=0.006, layout=0.006))
    assert math.sqrt(sum(row[0] ** 2 for row in real.offsets) / 200) == pytest.approx(0.006, rel=0.15)


def test_deviations_have_the_spread_of_the_rounds(script: ModuleType) -> None:
    noise = script.by_change(synthetic(script, 200, sigma=0.006))
    assert math.sqrt(sum(row[0] ** 2 for row in noise.rows) / len(noise.rows)) == pytest.approx(0.006, rel=0.05)
    assert noise.cases == ("a", "b")


@pytest.mark.parametrize(("hits", "trials", "bound"), [(0, 10_000, 0.00029953), (0, 300, 0.0099363), (3, 10_000, 0.00077523), (5, 5, 1.0)])
def test_the_bound_is_clopper_and_pearsons(script: ModuleType, hits: int, trials: int, bound: float) -> None:
    assert script.upper_bound(hits, trials) == pytest.approx(bound, rel=2e-4)


@pytest.mark.parametrize("text", ["{}", "[1]", "not json", '{"machine": 3, "evaluations": []}'])
def test_what_is_no_recording_is_said(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert script.main([str(path), "--out", str(tmp_path / "out.json")]) == 2
    assert "not a recording" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_a_single_round_is_too_little(script: ModuleType, tmp_path: Path) -> None:
    recording = synthetic(script, 2)
    short = msgspec.structs.replace(recording.evaluations[0], rounds=recording.evaluations[0].rounds[:1])
    path = write(msgspec.structs.replace(recording, evaluations=(short,)), tmp_path / "aa.json")
    with pytest.raises(script.UsageError, match="fewer than two rounds"):
        script.read(path)
