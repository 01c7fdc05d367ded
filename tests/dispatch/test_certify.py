"""The sweep: what is asked for when, what is stored, what is used again; and the judge itself on a small task."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from keepfast import model, shop
from keepfast.dispatch import certify, measure, regions, table, text
from keepfast.dispatch.records import ROUTES, SHEET, Axes, Finding, Sheet, Shot, Space, Table, Terms
from keepfast.errors import MachineError, TaskError, UsageError
from keepfast.ledger import Ledger
from keepfast.materialise import tree_hash
from keepfast.model import Candidate, File
from keepfast.testing import recorded
from tests.dispatch import kit

SPACE = Space(("m",), (("m", (1, 2, 4, 8, 16, 32, 64, 128)),), ())
TERMS = Terms(0.05, regions.most(SPACE), 0.003, 0.001)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def made(point: Axes) -> Finding:
    d = -0.2 if dict(point)["m"] >= 40 else 0.1
    return Finding(point, "measured", "", (Shot("stock", d, 0.001, 6, 1, 1),))


def test_the_hours_end_it_and_it_goes_on_where_it_stopped() -> None:
    clock, asked, saved = Clock(), list[Axes](), list[Sheet]()

    def measured(points: tuple[Axes, ...]) -> tuple[Finding, ...]:
        clock.now += 1
        asked.extend(points)
        assert len(points) <= measure.BATCH
        return tuple(made(p) for p in points)

    sheet, complete = certify.swept(certify.Plan(SPACE, TERMS, saved.append, 1.0, clock), Sheet("k"), measured)
    assert not complete
    assert len(sheet.findings) == measure.BATCH
    assert saved[-1] == sheet
    sheet, complete = certify.swept(certify.Plan(SPACE, TERMS, saved.append, None, clock), sheet, measured)
    assert complete
    assert len(asked) == len(set(asked))  # nothing twice
    rows = table.rows(SPACE, sheet.findings, TERMS)
    assert len(rows) > len(SPACE.cells())  # bisected
    (region,) = table.decided(SPACE, rows)
    assert 40 <= region.spans[0].low <= 48
    assert region.spans[0].high == 128


def test_what_the_machine_could_not_do_is_asked_once_a_go() -> None:
    def measured(points: tuple[Axes, ...]) -> tuple[Finding, ...]:
        return tuple(Finding(p, "void", "busy") if dict(p)["m"] == 8 else made(p) for p in points)

    sheet, complete = certify.swept(certify.Plan(SPACE, TERMS, lambda s: None), Sheet("k"), measured)
    assert complete
    assert [dict(f.point)["m"] for f in sheet.findings if f.state == "void"] == [8]
    row = next(r for r in table.rows(SPACE, sheet.findings, TERMS) if r.cell == (8,))
    assert (row.custom, row.why) == (False, "not measured: busy")


# --------------------------------------------------------------------------------------------- one fault is one point's


class FakeJudge:
    """Begins and compares by what the cases are called."""

    def __init__(self, task: model.Task, calls: list[tuple[str, ...]]) -> None:
        self.task = task
        calls.append(tuple(c.name for c in task.cases))

    def begin(self, start: Candidate, calibration: model.Calibration | None) -> model.Begin:
        names = {c.name for c in self.task.cases}
        if "m3" in names:
            verdict = recorded.reject(detail="case m3: row 2")
            return model.Begin(verdict, None)
        if "m5" in names:
            raise MachineError("busy")
        if "m9" in names and len(names) > 1:
            raise TaskError("does not fit")
        found = [model.BaselineResult(b.name, not (b.name == "other" and "m4" in names), "no", None) for b in self.task.baselines]
        if "m7" in names:
            found = [replace(r, ok=False) if r.name == "stock" else r for r in found]
        return model.Begin(recorded.started(), calibration, tuple(found))

    def compare(self, champion: Candidate, opponent: str, rounds: int, final: bool) -> model.Direct:
        one = recorded.direct(1, -0.1, against=opponent, rounds=rounds)
        return replace(one, cases=tuple(replace(one.cases[0], case=c.name) for c in self.task.cases))


def test_what_fails_together_is_measured_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    calls: list[tuple[str, ...]] = []

    @contextmanager
    def opened(ready: shop.Shop, task: model.Task, emit: object):  # type: ignore[no-untyped-def]
        yield FakeJudge(task, calls)

    monkeypatch.setattr(measure, "_opened", opened)
    task = replace(kit.c_softmax(tmp_path), baselines=tuple(model.Baseline(n, f"baselines/{n}.py", "python") for n in ("stock", "other")))
    ready = shop.Shop(None, task, None, None, None)  # type: ignore[arg-type]
    contest = measure.Contest(ready, Candidate((), "t", ""), recorded.calibration(), ("stock", "other"), 4, lambda e: None)
    found = measure.measured(contest, [(("m", m),) for m in (1, 2, 3, 4, 5, 6, 7, 9)])
    states = {dict(f.point)["m"]: (f.state, len(f.shots)) for f in found}
    assert states == {
        1: ("measured", 2), 2: ("measured", 2), 3: ("wrong", 0), 4: ("measured", 1), 5: ("void", 0), 6: ("measured", 2),
        7: ("no-stock", 0), 9: ("measured", 2),
    }  # fmt: skip
    assert found[3].absent == ("other: no",)
    assert found[2].detail == "wrong: case m3: row 2"
    assert max(len(names) for names in calls) == measure.BATCH


def test_layouts_of_a_gpu_task() -> None:
    from types import SimpleNamespace

    from keepfast.gpu.layout import Given, Layout, Output, Tensor

    x = Tensor("bfloat16", (4, 128), (128, 1), 0, 0, 1024)
    tilted = Tensor("bfloat16", (4, 128), (1, 4), 0, 0, 1024)
    given = (Given("x", "tensor", x), Given("t", "tensor", tilted), Given("mask", "tensor"), Given("eps", "float", value=1e-6))
    layout = Layout("m4", (("m", 4),), given, (Output("out", "bfloat16", (4, 128), 1024),), 4096)
    judge = SimpleNamespace(oracle=SimpleNamespace(describe=lambda: SimpleNamespace(layouts=(layout,))))
    (found,) = measure._gpu_seen(judge)  # type: ignore[arg-type]
    assert [(t[0], t[2], t[3]) for t in found.tensors] == [("x", (4, 128), True), ("t", (4, 128), False), ("out", (4, 128), True)]
    assert found.scalars == (("eps", 1e-6),)


# --------------------------------------------------------------------------------------------- the judge, on a small task


def repository(tmp_path: Path) -> model.Task:
    task = kit.c_softmax(tmp_path, '[dispatch]\nvisible = ["m"]\nhidden = ["n"]\ngrid = { m = [8, 16], n = [256] }\nrounds = 3\n')
    for argv in (("init", "-q"), ("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "s")):
        subprocess.run(("git", *argv), cwd=tmp_path, check=True, capture_output=True)
    return task


def begun(task: model.Task, ready: shop.Shop, ledger: Ledger, source: str = "") -> model.Run:
    """A run whose start was kept, as the loop leaves it."""
    from keepfast import lifecycle

    run = lifecycle.new_run(task, ready.repo, ledger, lifecycle.Options(ready.machine)).run
    files = ready.repo.files(run.base, task.editable, task.root)
    start = model.Experiment(1, "start", "start", "", None, tree_hash(files), run.base, 0, recorded.started(), 1.0, 1.0)
    ledger.start(run)
    ledger.append(run.id, start)
    ledger.add_calibration(task.hash, replace(recorded.calibration(ready.machine.hash), layout=0.0, offset=0.0))
    return run


@pytest.mark.usefixtures("calm", "walled")
def test_the_judge_measures_it_and_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = repository(tmp_path)
    ready = shop.open_shop(Path(task.folder))
    with pytest.raises(UsageError, match="no champion of softmax"):
        certify.certify(Path(task.folder), certify.Wanted(shop.DEFAULT))
    with Ledger.open(ready.repo.ensure_state()) as ledger:
        run = begun(task, ready, ledger)
    none = certify.certify(Path(task.folder), certify.Wanted(shop.DEFAULT, hours=0.0))
    assert not none.table.complete
    assert none.table.rows == ()
    found = certify.certify(Path(task.folder), certify.Wanted(shop.DEFAULT)).table
    assert found.complete
    assert [row.cell for row in found.rows if row.cell in ((8,), (16,))] == [(8,), (16,)]
    assert (found.stock, found.champion, found.rounds, found.device) == ("numpy", 1, 3, "cpu")
    assert [a.name for a in found.arguments] == ["x"]
    assert [d.axis for d in found.outputs[0].dims] == ["m", "n"]
    assert all(r.worst is None or r.worst.rounds == 3 for r in found.rows)
    with Ledger.open(ready.repo.state, readonly=True) as ledger:
        assert certify.newest_table(ledger, run, found.tree) == found
        assert certify.newest_table(ledger, run, "another") is None
        (sheet, *_) = certify.stored(ledger, run, SHEET)
        assert isinstance(sheet, Sheet)
        assert len(sheet.findings) >= 2
        assert {s.event.kind for s in ledger.events(run.id) if s.event.about} == {"certify"}
    _used_again(task, monkeypatch, found)


def _used_again(task: model.Task, monkeypatch: pytest.MonkeyPatch, before: Table) -> None:
    """What was measured for the same key is not measured again."""

    def never(contest: object, points: object) -> tuple[Finding, ...]:
        raise AssertionError("measured again")

    monkeypatch.setattr(measure, "measured", never)
    again = certify.certify(Path(task.folder), certify.Wanted(shop.DEFAULT)).table
    assert again.rows == before.rows
    with pytest.raises(AssertionError, match="measured again"):
        certify.certify(Path(task.folder), certify.Wanted(shop.DEFAULT, again=True))


def test_a_table_survives_json(tmp_path: Path) -> None:
    one = kit.table(kit.c_softmax(tmp_path))
    assert msgspec.json.decode(msgspec.json.encode(one), type=Table) == one
    assert one.schema == ROUTES


def test_a_table_in_words(tmp_path: Path) -> None:
    one = kit.table(kit.c_softmax(tmp_path))
    lines = text.told(one, "a" * 64)
    assert any(line.startswith("m=32 n=64") and "stock" in line and "slower" in line for line in lines)
    assert any("custom where m is 4 to 16" in line and "at least +64" in line for line in lines)
    assert lines[-1] == "table    aaaaaaaaaaaaaaaa   keepfast export"
    assert text.told(replace(one, complete=False))[-1].startswith("not complete")
    assert text.regions(replace(one, regions=())) == ["no region is certified: everything goes to numpy"]


def test_a_candidate_is_made_of_files() -> None:
    assert tree_hash((File("a", b""),)) != tree_hash((File("b", b""),))
