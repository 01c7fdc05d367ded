"""The scripts for the GPU judge: what is done, in which order, what is not done again, and what is said of it. The judge is the real one,
with everything around it in this process (tests/judge/gpu/inside.py)."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.gpu.messages import Timed
from keepfast.judge.gpu import arms, rounds
from keepfast.judge.gpu.judge import GpuBench, GpuJudge
from keepfast.judge.gpu.workers import WorkerSpec
from keepfast.model import CaseRound, Fact, File, Kind, Machine, Phase, Reason, Round
from keepfast.task.load import load
from tests.benchmarks.scripts import BENCHMARKS, script
from tests.judge.gpu import fakes, inside
from tests.judge.made_rounds import calibrated

HERE = BENCHMARKS / "gpu"
MACHINE = Machine("cpu", 2, "6", "gcc", "walls", "NVIDIA H200", (("copy_GBps", 4000.0),), "m")


def gpu_script(name: str) -> ModuleType:
    """One of benchmarks/gpu; `resample` is there twice, so this one has a name of its own."""
    script("workbench")
    sys.path.insert(0, str(HERE))
    try:
        if name != "resample":
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location("gpu_resample", HERE / "resample.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(HERE))
        sys.path[:] = [folder for folder in sys.path if folder != str(BENCHMARKS)]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return gpu_script("bench")


@pytest.fixture(scope="module")
def gains() -> ModuleType:
    return gpu_script("gains")


@pytest.fixture(scope="module")
def aa() -> ModuleType:
    return gpu_script("aa")


@pytest.fixture(scope="module")
def judging() -> ModuleType:
    return gpu_script("judging")


@pytest.fixture(scope="module")
def plans() -> ModuleType:
    return gpu_script("plans")


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    return gpu_script("kernels")


class Desk:
    """As much of bench.Desk as the scripts use, on a card that is not there."""

    def __init__(self, bench: ModuleType, folder: Path) -> None:
        self.bench, self.folder = bench, folder
        self.machine = MACHINE
        self.card = SimpleNamespace(visible="GPU-fake", memory_bytes=1 << 37)
        self.pool, self.launchers = inside.FakePool(), inside.FakeLaunchers()
        self.judges: list[GpuJudge] = []

    def session(self, date: str = "2026-01-01T00:00:00Z") -> Any:
        return self.bench.Session(self.machine, "580", (Fact("triton", "3.6"),), date, "python benchmarks/gpu/x.py")

    @contextmanager
    def judge(self, folder: Path, out: Path, kind: type[GpuJudge] = GpuJudge, *, cases: Any = None) -> Iterator[GpuJudge]:
        task = load(folder)
        task = replace(task, cases=cases(task)) if cases else task
        oracle = inside.FakeOracle(tuple(fakes.layout(c.name, 4096, (4096,)) for c in task.cases))
        parts: Any = (inside.FakeCard(), self.pool, self.launchers, oracle)
        walls: Any = SimpleNamespace(strength="partial")
        made = kind(GpuBench(task, walls, self.machine, *parts, self.folder, lambda code: None, lambda event: None, Random(7)))
        self.judges.append(made)
        yield made
        made.close()


@pytest.fixture
def desk(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(arms.builder, "tree", inside.tree)
    monkeypatch.setattr(rounds, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "default")
    return Desk(bench, tmp_path)


def given(module: ModuleType, out: Path, **more: Any) -> Any:
    """What the command line gives without any words, but for these."""
    known = {
        "gains": {"noops": 6, "gains": 2, "part": "1/1"},
        "aa": {"rounds": 3, "captures_every": 2, "tasks": "norm", "cases": 0},
        "kernels": {"versions": (), "rounds": 2, "only": "", "cases": 1},
        "judging": {"repeats": 1},
        "plans": {"only": "", "inside": 0},
        "bench": {},
    }[module.__name__]
    return module.Given(**({"seconds": 1000.0, "out": out, "fresh": False, "card": ""} | known | more))


def acts(worn: Any, more: int = 0) -> str:
    """Instead of dresses.source: as long as its work, and code of its own."""
    ns = 40_000.0 * (1 + (1 / more if more else 0))
    text = inside.Acts(code=f"{worn.name} {more}", ns=ns).source().decode()
    return f"{text}# {worn.name} {more}\n"


# --------------------------------------------------------------------------------------------- command lines


@pytest.mark.parametrize("name", ["aa", "gains", "judging", "plans", "kernels", "resample", "codes", "inside", "agenda"])
def test_every_script_says_what_it_does(name: str) -> None:
    assert name in (gpu_script(name).__doc__ or "")


@pytest.mark.parametrize("name", ["aa", "gains", "judging", "plans", "kernels"])
def test_summing_up_nothing_needs_no_gpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_script("bench"), "RESULTS", tmp_path / "default")
    gpu_script(name).main(["--seconds", "0", "--out", str(tmp_path)])
    assert json.loads((tmp_path / f"{name}.json").read_text())["sessions"] == []
    assert "asked" in capsys.readouterr().out


def test_without_a_gpu_it_is_said_in_one_message(aa: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def none(card: str) -> None:
        raise MachineError("no NVIDIA GPU", next_step="keepfast doctor")

    monkeypatch.setattr(aa, "Desk", none)
    assert aa.main(["--out", str(tmp_path)]) != 0
    assert "no NVIDIA GPU" in capsys.readouterr().err
    assert not (tmp_path / "aa.json").exists()


def test_an_unknown_task_is_named_with_those_that_are(aa: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert aa.main(["--seconds", "0", "--tasks", "nrom", "--out", str(tmp_path)]) == 2
    assert "rmsnorm_plain" in capsys.readouterr().err


def test_a_script_that_has_no_time_for_anything_says_so(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert not bench.Clock(10.0, lambda: 0.0).room("keep", 25.0)
    assert "no time for keep: about 25 s are needed, and 10 s are left" in capsys.readouterr().err


def test_the_clock_begins_nothing_that_would_end_late(bench: ModuleType) -> None:
    now = [0.0]
    clock = bench.Clock(10.0, lambda: now[0])
    assert clock.room("round", 9.0)
    with clock.counted("round"):
        now[0] = 4.0
    assert clock.room("round", 0.1)
    now[0] = 7.0
    assert not clock.room("round", 0.1), "one took 4 s"
    assert clock.room("other", 3.0)


# --------------------------------------------------------------------------------------------- what is finished


def test_units_are_found_again_by_a_session_of_the_same_kind(bench: ModuleType, desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "out"
    book = bench.Book(given(bench, out), "x", desk.session())
    assert book.once("a", int, lambda: 1) == 1
    again = bench.Book(given(bench, out), "x", desk.session("2026-01-02T00:00:00Z"))
    assert again.once("a", int, lambda: pytest.fail("it was finished")) == 1
    other = replace(desk.session(), driver="590")
    assert bench.Book(given(bench, out), "x", other).find("a", int) is None
    near = replace(desk.session(), driver="580.159.04")
    assert near.label == replace(near, driver="580.159.03").label != desk.session().label, "the branch of the driver counts"
    assert len(again.sessions()) == 2
    assert bench.Book(given(bench, out, seconds=0.0), "x", None).find("a", int) is None, "the last session was of another driver"


def test_lines_of_the_default_folder_are_taken_along(bench: ModuleType, desk: Desk, tmp_path: Path) -> None:
    bench.Book(given(bench, bench.RESULTS), "x", desk.session()).store.add("a", 1)
    assert bench.Book(given(bench, tmp_path / "out"), "x", desk.session()).find("a", int) == 1
    assert bench.Book(given(bench, tmp_path / "out", fresh=True), "x", desk.session()).find("a", int) is None


def test_a_unit_that_fails_is_a_line_and_is_tried_once_more(bench: ModuleType, desk: Desk, tmp_path: Path) -> None:
    def fails() -> int:
        raise MachineError("the card is gone")

    for number in (1, 2, 3):
        book = bench.Book(given(bench, tmp_path / "out"), "x", desk.session(str(number)))
        assert book.done_with("a") == (number == 3)
        assert book.once("a", int, fails) is None
        assert book.once("b", int, lambda: 2) == 2
    assert [(f.key, f.error) for f in book.failures()] == [("a", "MachineError: the card is gone")]
    book.store.add("a", 1)
    assert book.failures() == ()


def test_many_failures_in_a_row_end_the_session(bench: ModuleType, desk: Desk, tmp_path: Path) -> None:
    book = bench.Book(given(bench, tmp_path / "out"), "x", desk.session())
    for number in range(bench.IN_A_ROW - 1):
        assert book.once(f"unit {number}", int, lambda: 1 // 0) is None
    with pytest.raises(bench.Stop, match="division"):
        book.once("one more", int, lambda: 1 // 0)
    assert len(book.failures()) == bench.IN_A_ROW


# --------------------------------------------------------------------------------------------- dresses, order


def test_there_are_enough_dresses_and_no_two_alike() -> None:
    dresses = gpu_script("dresses")
    texts = {dresses.source(worn) for worn in (dresses.Dress(), *dresses.DRESSES)}
    assert len(texts) == len(dresses.DRESSES) + 1 >= 41
    assert {m for m in dresses.MORE.values() if dresses.ROWS % m} == set(), "work is counted in whole rows"
    assert "rms[(m + m // 200,)](" in dresses.source(dresses.Dress(), 200)
    with pytest.raises(ValueError, match="has no"):
        dresses.dress("row purple")


def run_codes(*words: str) -> list[dict[str, Any]]:
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ | {"TRITON_CACHE_DIR": cache, "PYTHONPATH": str(BENCHMARKS.parent / "src")}
        done = subprocess.run([sys.executable, str(HERE / "codes.py"), *words], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_dresses_compile_to_different_code_and_fill_the_card_alike() -> None:
    found = run_codes()
    assert len(found) >= 41
    assert len({f["code"] for f in found}) == len(found)
    blocks = {(-(-f["registers"] // 8), f["shared"]) for f in found}  # registers are handed out eight at a time
    assert len(blocks) == 1, "as many blocks on a multiprocessor"


def test_dresses_compute_the_same() -> None:
    found = run_codes("--values")
    assert len(found) >= 41
    assert max(f["error"] for f in found) < 0.02, "a rounding to bfloat16"


def test_any_part_of_the_order_is_a_fair_sample(gains: ModuleType) -> None:
    order = gains.units(48, 12)
    assert [u.group for u in order[:6]] == ["gain1", "noop", "gain05", "noop", "noop", "noop"]
    assert len({u.key for u in order}) == len(order) == 72
    assert {u.group: sum(v.group == u.group for v in order[:30]) for u in order} == {"gain1": 5, "noop": 20, "gain05": 5}
    assert len({u.dress for u in order if u.group == "noop"}) == 48
    assert all(len({u.dress for u in order if u.group == name}) == 12 for name in gains.GAINS)


def test_parts_share_the_units_out(gains: ModuleType) -> None:
    order = gains.units(48, 12)
    first, second = gains.part(order, "1/2"), gains.part(order, "2/2")
    assert {u.key for u in first} | {u.key for u in second} == {u.key for u in order}
    assert {u.key for u in first} & {u.key for u in second} == set()
    assert sum(u.group == "gain1" for u in first) == 6
    assert gains.part(order, "1/1") == order


# --------------------------------------------------------------------------------------------- gains


@pytest.fixture
def worn(gains: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gains.dresses, "source", acts)


def judged(module: ModuleType, desk: Desk, out: Path, clock: Any = None, **more: Any) -> Any:
    asked = given(module, out, **more)
    book = desk.bench.Book(asked, "gains", desk.session(), module.digest())
    module.judged(asked, desk, book, clock or desk.bench.Clock(1000.0))
    return book


def test_noops_are_reverted_and_gains_kept_with_their_true_size(gains: ModuleType, desk: Desk, tmp_path: Path, worn: None) -> None:
    book = judged(gains, desk, tmp_path / "out")
    found = gains.summed(book, {"noop": 6, "gain1": 2, "gain05": 2})
    assert {g.name: (g.done, g.kept, g.reasons) for g in found.groups} == {
        "noop": (6, 0, {"no-gain": 6}),
        "gain1": (2, 2, {"faster": 2}),
        "gain05": (2, 2, {"faster": 2}),
    }
    assert [b.name for b in found.bars if not b.ok] == []
    one = found.groups[1]
    assert one.claimed is not None
    assert (one.claimed[0], one.true_percent, one.covered, one.codes) == (pytest.approx(1.0), pytest.approx(1.0), 2, 2)
    assert set(found.seconds_of_rungs) == {"guard", "build", "plan", "correct", "rules", "time"}
    assert book.find("calibration m", type(found.calibration)) == found.calibration
    gains.tell(found)


def test_a_noop_that_ended_early_is_measured_on(gains: ModuleType, desk: Desk, tmp_path: Path, worn: None) -> None:
    book = judged(gains, desk, tmp_path / "first", noops=0, gains=0)
    assert book.all("noop", gains.Item) == {}

    def slow(worn: Any, more: int = 0) -> str:
        return inside.Acts(code=worn.name, ns=40_000.0 if worn.name == "plain" else 40_400.0).source().decode()

    gains.dresses.source = slow
    items = judged(gains, desk, tmp_path / "out", noops=1, gains=0).all("noop", gains.Item)
    (item,) = items.values()
    assert (item.reason, [r.phase for r in item.rounds], [r.phase for r in item.more]) == (Reason.SLOWER, [Phase.SCREEN], [Phase.TEST] * 4)
    assert len(gains.full(item)) == gains.FULL == 5


def test_what_is_finished_is_not_judged_again(gains: ModuleType, desk: Desk, tmp_path: Path, worn: None) -> None:
    judged(gains, desk, tmp_path / "out", noops=2, gains=1)
    assert len(desk.judges) == 1
    judged(gains, desk, tmp_path / "out", noops=2, gains=1)
    assert len(desk.judges) == 1, "no judge is opened for nothing"
    desk.launchers.opened.clear()
    book = judged(gains, desk, tmp_path / "out", noops=3, gains=1)
    assert len(book.all("noop", gains.Item)) == 3
    assert {arms[0][0] for _, arms in desk.launchers.timed()} == {f"{gains.units(3, 0)[2].dress.name} 0"}, "nor is noise measured again"


def test_nothing_is_begun_when_time_is_short(gains: ModuleType, desk: Desk, tmp_path: Path, worn: None) -> None:
    judged(gains, desk, tmp_path / "out", desk.bench.Clock(5.0))
    assert desk.judges == []


def test_a_broken_unit_is_recorded_and_the_next_goes_on(gains: ModuleType, desk: Desk, tmp_path: Path, worn: None) -> None:
    order = gains.units(2, 1)
    broken = order[1].dress.name

    def source(worn: Any, more: int = 0) -> str:
        made = inside.Acts(code=worn.name, ns=40_000.0 * (1 + (1 / more if more else 0)), crashes=("open",) if worn.name == broken else ())
        return made.source().decode()

    gains.dresses.source = source
    book = judged(gains, desk, tmp_path / "out", noops=2, gains=1)
    found = gains.summed(book, {"noop": 2, "gain1": 1, "gain05": 1})
    assert {g.name: g.reasons for g in found.groups} == {
        "noop": {"crash": 1, "no-gain": 1},
        "gain1": {"faster": 1},
        "gain05": {"faster": 1},
    }


def made_item(gains: ModuleType, name: str, d: float, **more: Any) -> Any:
    measured = tuple(Round(Phase.TEST, d, (CaseRound("timed", d, 1e4, 1e4),)) for _ in range(5))
    fields = {"kind": Kind.REVERT, "reason": Reason.NO_GAIN, "detail": "", "calibration": calibrated(sigma=0.0005)} | more
    return gains.Item(
        group=name, dress=f"{d}", truth=0.0, seconds=7.0, wall_s=8.0, rungs=(("time", 5.0),), code=f"{d}", registers=32, machine="m",
        rounds=measured, **fields,
    )  # fmt: skip


def test_a_kept_noop_and_lost_gains_miss_the_bars(gains: ModuleType) -> None:
    kept = {"kind": Kind.KEEP, "reason": Reason.FASTER}
    noops = gains.group("noop", [made_item(gains, "noop", -0.01, **kept), made_item(gains, "noop", 0.0)])
    lost = gains.group("gain1", [made_item(gains, "gain1", -0.001 * i) for i in range(2)])
    assert [b.ok for b in gains.bars([noops, lost], {"noop": 2, "gain1": 2})] == [False, False, True]
    assert len(noops.lost) == 1
    assert len(lost.lost) == 2


# --------------------------------------------------------------------------------------------- A/A


def test_aa_rounds_are_of_two_captures_of_the_start(aa: ModuleType, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = inside.Acts(code="start").source()
    monkeypatch.setattr(aa.bench, "start_of", lambda task: aa.bench.of_files((File(task.entry_path, start),), 1))
    asked = given(aa, tmp_path / "out", rounds=5)
    book = desk.bench.Book(asked, "aa", desk.session())
    aa.measured(asked, desk, book, desk.bench.Clock(1000.0))
    assert [arms for _, arms in desk.launchers.timed()] == [(("start", take), ("start", take + 1)) for take in (0, 0, 2, 2, 4)], (
        "captured again after two rounds"
    )
    found = book.all(aa.prefix("norm"), aa.Measured)
    assert len(found) == 5
    (row,) = aa.rows(list(found.values()))
    assert (row.task, row.case, row.rounds, row.captures, row.offset, row.call_us) == ("norm", "wide", 5, 3, 0.0, pytest.approx(10.0))
    aa.measured(asked, desk, book, desk.bench.Clock(1000.0))
    assert len(desk.judges) == 1, "all of it is there"


def test_aa_times_some_cases_of_a_task_from_the_first_to_the_last(aa: ModuleType) -> None:
    task = load(aa.bench.ROOT / "examples/gpu/decode_attention")
    assert [c.name for c in aa.spread(task, 3)] == ["b1_s1024", "b32_s8192", "b4_s131072"]
    assert [c.name for c in aa.spread(task, 1)] == ["b1_s1024"]
    assert aa.spread(task, 0) == aa.spread(task, 99) == task.timed


def test_aa_separates_rounds_from_captures(aa: ModuleType) -> None:
    def measured(capture: str, d: float) -> Any:
        return aa.Measured("t", capture, Round(Phase.CALIBRATE, d, (CaseRound("c", d, 2e4, 2e4),), seconds=0.9), {"c": 50})

    found = [measured("a", 0.001 + d) for d in (-1e-4, 1e-4)] + [measured("b", -0.001 + d) for d in (-1e-4, 1e-4)]
    (row,) = aa.rows(found)
    assert row.sd == pytest.approx(math.sqrt(2) * 1e-4)
    assert row.offset == pytest.approx(0.0)
    assert row.low < -0.001 < 0.001 < row.high
    assert [b.ok for b in aa.bars([replace(row, case=f"{n}") for n in range(6)])] == [True, True, True]
    assert not all(b.ok for b in aa.bars([replace(row, case=f"{n}", offset=0.002) for n in range(6)]))
    aa.tell([row])


# --------------------------------------------------------------------------------------------- judging


def test_every_kind_of_verdict_changes_the_start_kernel(judging: ModuleType) -> None:
    text = (judging.TASK / "kernel" / "kernel.py").read_text()
    changed = {judging.changed(case, text) for case in judging.KINDS if not case.bare}
    assert text not in changed
    assert len(changed) == sum(not case.bare for case in judging.KINDS)
    with pytest.raises(ValueError, match="has no"):
        judging.changed(replace(judging.KINDS[0], old="nothing of the sort"), text)


def test_costs_and_bars_of_judging(judging: ModuleType) -> None:
    case = next(c for c in judging.KINDS if c.name == "screen-out")
    rungs = (("guard", 0.0), ("plan", 1.1), ("time", 0.9))
    sample = judging.Sample("screen-out", 3.0, 2.9, Kind.REVERT, Reason.SLOWER, "", rungs, 1, 0.8, 0.0)
    cost = judging.cost(case, [sample, replace(sample, wall_s=5.0), replace(sample, wall_s=3.5)])
    assert (cost.median_s, cost.fastest_s, cost.slowest_s, cost.rungs["plan"], cost.round_s) == (3.5, 3.0, 5.0, 1.1, 0.8)
    others = [replace(cost, name="slow", median_s=4.1), replace(cost, name="none", samples=0)]
    assert [b.ok for b in judging.bars([cost, *others])] == [True, False, False]
    odd = judging.cost(case, [replace(sample, reason=Reason.NO_GAIN)])
    assert not judging.bars([odd])[0].ok
    judging.tell([cost])


def test_what_the_defences_cost(judging: ModuleType) -> None:
    def cost(name: str, seconds: float) -> object:
        return judging.Cost(name, 0.0, 3, seconds, seconds, seconds, {}, 1.0, 1.0, ())

    costs = [cost("keep", 11.4), cost("bare keep", 10.0), cost("screen-out", 2.6), cost("bare screen-out", 2.0)]
    assert [(b.name, b.ok) for b in judging.bars(costs)[-2:]] == [("defences, of a keep", True), ("defences, of a screen-out", False)]
    assert len(judging.bars(costs[:1])) == 1, "nothing to compare with"


def test_bare_verdicts_have_none_of_the_defences(judging: ModuleType) -> None:
    from keepfast.judge.gpu import check, rounds

    with judging.bared():
        assert (check.parts(8, Random(0)), rounds.parts(8, Random(0))) == ((), ())
        assert judging.GpuJudge._named(None, None, None) is check.OneCase._later(None, 0, 0.0) is None
    assert check.parts(8, Random(0)) != ()


def test_a_verdict_is_timed_with_warm_workers(judging: ModuleType, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds but the first two, which a stand-in of a worker does not see."""
    texts = {"num_warps=8": 10_000.0, "num_warps=4": 9_000.0, "num_warps=1": 20_000.0}

    def code(text: str) -> bytes:
        ns = next(ns for words, ns in texts.items() if words in text) * text.count("rms[(m,)]")
        other = "n * eps" in text
        return inside.Acts(code=f"{ns} {other}", ns=ns).source() + text.encode()

    monkeypatch.setattr(desk.bench, "candidate", lambda task, text, n=0: desk.bench.of_files((File(task.entry_path, code(text)),), n))
    monkeypatch.setattr(judging, "KINDS", judging.KINDS[2:])
    asked = given(judging, tmp_path / "out", repeats=2)
    book = desk.bench.Book(asked, "judging", desk.session())
    judging.measured(asked, desk, book, desk.bench.Clock(1000.0))
    costs = [judging.cost(case, list(book.all(f"{case.name} ", judging.Sample).values())) for case in judging.KINDS]
    assert [(c.name, c.samples, c.unexpected) for c in costs] == [(case.name, 2, ()) for case in judging.KINDS]
    assert {c.name: c.rounds for c in costs} == {
        "same code": 0, "screen-out": 1, "no gain": 5, "keep": 11, "bare screen-out": 1, "bare keep": 11,
    }  # fmt: skip


# --------------------------------------------------------------------------------------------- kernels


@pytest.fixture
def raced(kernels: ModuleType, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Two versions of the task norm against two baselines, of which one is not installed: what the script wrote."""
    task = load(desk.bench.ROOT / "tests/gpu/tasks/norm")
    eager = task.baselines[0]
    folder = tmp_path / "norm"
    shutil.copytree(task.folder, folder)
    for name, made in {"eager": inside.Acts(code="eager", ns=20_000.0), "liger": inside.Acts(code="liger", crashes=("capture",))}.items():
        (folder / eager.path).with_name(f"{name}.py").write_bytes(made.source())
    monkeypatch.setattr(kernels, "folder", lambda name: folder)
    acts = {"start": inside.Acts(code="start"), "wrong": inside.Acts(code="wrong", said={"mixed": {"wrong": "out[0] is off"}})}

    def version(task: Any, entry: str) -> Any:
        return kernels.Version(task.name, entry, desk.bench.of_files((File(task.entry_path, acts[entry].source()),), 1))

    monkeypatch.setattr(kernels, "version", version)

    def run(clock: Any = None, **more: Any) -> Any:
        asked = given(kernels, tmp_path / "out", versions=("norm:start", "norm:wrong"), **more)
        book = desk.bench.Book(asked, "kernels", desk.session())
        kernels.measured(asked, desk, book, clock or desk.bench.Clock(1000.0))
        kernels.checked(asked, desk, book, clock or desk.bench.Clock(1000.0))
        return kernels.summed(book, ["norm"])

    return run


def test_versions_are_timed_beside_baselines(kernels: ModuleType, desk: Desk, raced: Callable[..., Any]) -> None:
    found = raced()
    (row,) = found.rows
    assert (row.version, row.baseline, row.case, row.us, row.baseline_us, row.rounds) == ("start", "eager", "wide", 10.0, 20.0, 2)
    assert row.gain == pytest.approx(100.0)
    assert row.low < row.gain < row.high
    assert len(found.not_timed) == 3
    assert sum("wrong: out[0] is off" in text or "out[0] is off" in text for text in found.not_timed) >= 1
    assert [(w.version, bool(w.error)) for w in found.whole] == [("start", False), ("wrong", True)]
    kernels.tell(found)
    judges = len(desk.judges)
    assert raced() == found
    assert len(desk.judges) == judges, "nothing is timed twice"


def test_no_pair_is_begun_that_would_end_late(desk: Desk, raced: Callable[..., Any]) -> None:
    found = raced(desk.bench.Clock(5.0))
    assert (found.rows, found.not_timed, found.whole, desk.judges) == ((), (), (), [])


def test_versions_that_are_measured_by_default_exist(kernels: ModuleType) -> None:
    found = kernels.versions(())
    assert {name: len(mine) for name, mine in found.items()} == {
        "softmax": 3,
        "rmsnorm_plain": 4,
        "quant": 3,
        "matmul": 2,
        "decode_attention": 1,
    }
    assert found["softmax"][0].name == "010-bulk-copies"
    names = kernels.baselines(load(kernels.folder("softmax")), "")
    assert names[-1] == "compiled"
    with pytest.raises(kernels.UsageError, match="010-bulk-copies"):
        kernels.versions(["softmax:nothing"])
    with pytest.raises(kernels.UsageError, match="no task"):
        kernels.versions(["nothing:start"])


# --------------------------------------------------------------------------------------------- plans


def test_every_kernel_of_the_examples_is_a_unit(plans: ModuleType, tmp_path: Path) -> None:
    units = plans.every(plans.tasks_of("", tmp_path))
    kinds = {u.kind: sum(v.kind == u.kind for v in units) for u in units}
    assert kinds["op"] >= 15
    assert sum(kinds.values()) >= 100
    assert len({u.key for u in units}) == len(units)
    ranks = [plans.RANK[u.kind] for u in units]
    assert ranks == sorted(ranks), "any beginning of it has all starts, then operations"
    assert len(plans.compared(units, 12)) == 12
    with pytest.raises(plans.UsageError, match="ops"):
        plans.tasks_of("nothing", tmp_path / "other")


def test_a_task_that_cannot_be_read_does_not_keep_the_others_from_their_plans(
    plans: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/task.toml").write_text("schema = 99\n")
    patched = tmp_path / "patched"
    shutil.copytree(plans.folders()["norm"], patched)
    (patched / "deck").mkdir()
    (patched / "deck/001-fits-nothing.patch").write_text("--- a/kernel/kernel.py\n+++ b/kernel/kernel.py\n@@ -1 +1 @@\n-none\n+such\n")
    known = {name: path for name, path in plans.folders().items() if name == "norm"}
    monkeypatch.setattr(plans, "folders", lambda: {**known, "broken": tmp_path / "broken", "patched": patched})
    units = plans.every(plans.tasks_of("", tmp_path))
    assert {u.task for u in units} >= {"norm", "ops"}
    said = capsys.readouterr().err
    assert "broken" in said
    assert "fits no variant" in said


def test_the_operations_are_a_task_and_their_kernels_are_right(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ops = gpu_script("ops")
    from keepfast.oracle import compare
    from keepfast.oracle.reference import Reference

    task = load(ops.make_task(tmp_path / "ops"))
    reference = Reference(task, "cpu")
    for name in ("gelu", "layer-norm", "average-pool", "argmax", "cross-entropy", "matrix-vector"):
        case = next(c for c in task.cases if c.name == name)
        values = reference.inputs(case, (1, 2, 3, 4))
        working, exact = reference.both(values)
        made: dict[str, Any] = {}
        exec(ops.source(name), made)
        got = made["kernel"](**values)
        assert isinstance(got, torch.Tensor)
        assert compare.judge("out", got, working["out"], exact["out"], compare.limits_of(task, case)).wrong == "", name


class Station:
    """As much of one as the capturing thread uses."""

    def __init__(self, desk: Desk) -> None:
        self.pool, self.launchers, self.arch = desk.pool, desk.launchers, "sm_90"
        self.pool.spec, self.pool.close = WorkerSpec("", 0), lambda: None  # type: ignore[attr-defined]
        self.walls = SimpleNamespace(strength="partial", folder=lambda: Path(tempfile.mkdtemp()))


@pytest.fixture
def replayed(plans: ModuleType, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Plans of made-up kernels of the task norm, by name: a session, and what it found."""
    task = load(desk.bench.ROOT / "tests/gpu/tasks/norm")
    places = gpu_script("places")
    layouts = (fakes.layout("wide", 4096, (4096,)),)
    monkeypatch.setattr(places, "Oracle", lambda task, card: inside.FakeOracle(layouts))
    monkeypatch.setattr(inside.FakeOracle, "close", lambda oracle: None, raising=False)
    desk.station = lambda task: Station(desk)  # type: ignore[attr-defined]
    monkeypatch.setattr(plans, "tasks_of", lambda only, room: {"norm": task})
    monkeypatch.setattr(plans, "inside", lambda kept, card, seconds: [plans.Pace(k.got.unit.key, k.us, 1.005 * k.us) for k in kept])

    def run(kernels: dict[str, inside.Acts], **more: Any) -> Any:
        def unit(name: str, made: inside.Acts) -> Any:
            candidate = desk.bench.of_files((File(task.entry_path, made.source()),))
            return plans.Unit("norm", "start", name, "wide", arms.Arm(candidate.tree, task, candidate))

        monkeypatch.setattr(plans, "every", lambda tasks: [unit(name, made) for name, made in kernels.items()])
        asked = given(plans, tmp_path / "out", inside=4, **more)
        book = desk.bench.Book(asked, "plans", desk.session())
        plans.Plans(asked, desk, book, desk.bench.Clock(1000.0)).run(tmp_path)
        return plans.summed(book, ["norm"])

    return run


def test_plans_are_captured_checked_and_timed(plans: ModuleType, desk: Desk, replayed: Callable[..., Any]) -> None:
    kernels = {
        "good": inside.Acts(code="good"),
        "varies": inside.Acts(code="varies", ran={"again": {"identical": False}}),
        "crashes": inside.Acts(code="crashes", crashes=("capture",)),
        "wrong": inside.Acts(code="wrong", said={"mixed": {"wrong": "out[0] is off"}}),
        "last": inside.Acts(code="last", ns=20_000.0),
    }
    found = replayed(kernels)
    assert (found.kernels, found.right, found.identical, found.reasons) == (5, 3, 2, {"crash": 1, "wrong": 1})
    by_name = {r.name: r for r in found.results}
    assert (by_name["good"].nodes, by_name["good"].launches > 20, by_name["good"].identical) == ({"kernel": 1}, True, True)
    assert (by_name["varies"].passes, by_name["varies"].identical) == (True, False)
    assert by_name["last"].call_us == pytest.approx(20.0)
    assert [(p.key, p.launcher_us) for p in found.paces] == [("norm: good, wide", 10.0), ("norm: varies, wide", 10.0)], "two of the starts"
    assert found.paces[0].apart == pytest.approx(-0.005, abs=1e-4)
    assert [b.ok for b in found.bars] == [False, True]
    plans.tell(found)
    before = len(desk.pool.subjects)
    assert replayed(kernels).kernels == 5
    assert len(desk.pool.subjects) == before, "nothing is captured twice"


def test_an_error_of_ours_is_a_line_and_the_next_kernel_goes_on(desk: Desk, replayed: Callable[..., Any], monkeypatch: Any) -> None:
    capture = desk.pool.capture

    def fails(subject: Any, timeout_s: float) -> Any:
        if b'"code":"bad"' in subject.files[0].data:
            raise MachineError("a worker did not get ready")
        return capture(subject, timeout_s)

    monkeypatch.setattr(desk.pool, "capture", fails)
    found = replayed({"bad": inside.Acts(code="bad"), "good": inside.Acts(code="good")})
    assert [r.name for r in found.results] == ["good"]


def test_kernels_that_the_process_with_torch_did_not_come_to_are_said_and_done_again(
    plans: ModuleType, desk: Desk, replayed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = msgspec.json.encode(plans.Timed("norm: good, wide", 10.0)).decode()
    said = [[line], []]  # of the first start, and of the second
    monkeypatch.setattr(plans, "inside", lambda kept, card, seconds: plans.heard(said.pop(0), {k.got.unit.key: k.us for k in kept}))
    kernels = {"good": inside.Acts(code="good"), "late": inside.Acts(code="late")}
    found = replayed(kernels)
    assert [(p.key, p.apart) for p in found.paces] == [("norm: good, wide", 0.0)]
    before = len(desk.pool.subjects)
    replayed(kernels)
    assert len(desk.pool.subjects) == before + 1, "only what is missing is captured again"


def test_what_cannot_be_encoded_is_listed(plans: ModuleType) -> None:
    result = plans.Result("t", "deck", "host", "c", False, "not-a-plan", "a memory copy from the host")
    others = [replace(result, reason="does-not-load", detail="No module named 'quack'"), replace(result, passes=True, reason="")]
    book = SimpleNamespace(all=lambda prefix, kind: dict(enumerate([result, *others])) if kind is plans.Result else {}, sessions=lambda: ())
    found = plans.summed(book, ["t"])
    assert found.not_encoded == ("t: host: not-a-plan, a memory copy from the host",)
    assert (found.reasons, found.right) == ({"not-a-plan": 1, "not installed": 1}, 1)


# --------------------------------------------------------------------------------------------- resampling


def test_recorded_rounds_are_resampled(
    gains: ModuleType, aa: ModuleType, desk: Desk, tmp_path: Path, worn: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    resample = gpu_script("resample")
    out, chance = tmp_path / "out", Random(1)
    noisy = inside.FakeLauncher.time

    def time(self: Any, order: Any) -> Any:
        found = noisy(self, order)
        return replace(found, d=found.d + chance.gauss(0, 0.0004)) if isinstance(found, Timed) else found

    monkeypatch.setattr(inside.FakeLauncher, "time", time)
    judged(gains, desk, out, noops=8, gains=0)
    book = desk.bench.Book(given(aa, out), "aa", desk.session())
    for n in range(12):
        d = chance.gauss(0, 0.0004)
        made = Round(Phase.CALIBRATE, d, (CaseRound("wide", d, 1e4, 1e4),), 1.0, 1.0)
        book.store.add(f"{aa.prefix('norm')}{n}", aa.Measured("norm", f"{n // 6}", made, {"wide": 50}))
    assert resample.main(["--decisions", "300", "--out", str(out)]) == 0
    found = msgspec.json.decode((out / "resample.json").read_bytes())
    assert [(r["recording"], r["evaluations"]) for r in found["reports"]] == [("noops_rounds.json", 8), ("aa_norm_rounds.json", 2)]
    assert all(bar["ok"] for bar in found["bars"])
    assert len(found["bars"]) == 4


def test_resampling_nothing_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resample = gpu_script("resample")
    resample.bench.RESULTS = tmp_path / "default"
    assert resample.main(["--out", str(tmp_path)]) == 2
    assert "benchmarks/gpu/gains.py" in capsys.readouterr().err
