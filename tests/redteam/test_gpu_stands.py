"""The GPU part of the redteam without a card: the judge is the real one, all around it is in this process, as in tests/judge/gpu."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.gpu.messages import Run
from keepfast.judge.gpu import arms, rounds
from keepfast.judge.gpu.judge import GpuBench, GpuJudge
from keepfast.model import Machine
from keepfast.redteam import attempt, gpu
from keepfast.redteam.attempt import Answers, Wanted
from keepfast.redteam.entries import Entry, Folders, folders
from keepfast.redteam.outcome import Outcome
from keepfast.task.load import load
from keepfast.walls.base import Walls
from tests.judge.gpu import fakes, inside

MACHINE = Machine("cpu", 2, "6", "gcc", "walls", "NVIDIA H200", (("copy_GBps", 4000.0),), "m")


class Bed:
    """What stands in for the card: `opened` counts stations, `closed` those that were closed again; `waits`: time-outs of captures."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.opened, self.closed = folder, 0, 0
        self.pool, self.launchers = inside.FakePool(), inside.FakeLaunchers()
        self.waits: list[float] = []
        self.broken = ""
        capture = self.pool.capture

        def heard(subject: Any, timeout_s: float) -> Any:
            self.waits.append(timeout_s)
            if self.broken:
                raise RuntimeError(self.broken)
            return capture(subject, timeout_s)

        self.pool.capture = heard  # type: ignore[method-assign]

    def open_shop(self, folder: Path) -> Any:
        self.opened += 1

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(task=load(folder), station=SimpleNamespace(close=close))

    @contextmanager
    def judge(self, made: Any, emit: Any, known: Any) -> Iterator[GpuJudge]:
        oracle = inside.FakeOracle(tuple(fakes.layout(c.name, 4096, (4096,)) for c in made.task.cases))
        walls: Any = SimpleNamespace(strength="walls")
        parts: Any = (inside.FakeCard(), self.pool, self.launchers, oracle)
        judge = GpuJudge(GpuBench(made.task, walls, MACHINE, *parts, self.folder, known, emit, Random(7)))
        yield judge
        judge.close()


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = Bed(tmp_path)
    monkeypatch.setattr(arms.builder, "tree", inside.tree)
    monkeypatch.setattr(rounds, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(gpu, "left_behind", list)
    for name, value in {"open_shop": made.open_shop, "measured": lambda ready: ready, "judge": made.judge}.items():
        monkeypatch.setattr(gpu.shop, name, value)
    return made


@pytest.fixture
def at(tmp_path: Path) -> Folders:
    """The task `norm`, whose kernel says in its first line what it does."""
    place = tmp_path / "tasks/norm"
    shutil.copytree(folders().gpu / "norm", place)
    (place / "kernel/kernel.py").write_bytes(inside.Acts(code="start").source())
    return replace(folders(), gpu=place.parent)


def entry(acts: inside.Acts, honest: bool = False, **said: str) -> Entry:
    header = {"id": "X1", "task": "norm", "expect": "pass" if honest else "wrong", "layer": "" if honest else "correct"} | said
    return Entry("x", "gpu", honest, tuple(header.items()), acts.source().decode(), Path("x.py"))


WRONG = inside.Acts(code="wrong", said={"mixed": {"wrong": "out[0] is off"}})


def states(at: Folders, entries: list[Entry]) -> list[tuple[str, str]]:
    with Answers(at, Walls.detect()) as answers:
        return [(one.state, one.detail) for one in map(answers.outcome, entries)]


def test_entries_go_as_far_up_the_ladder_as_they_say(bed: Bed, at: Folders) -> None:
    slow = inside.Acts(code="twice the work", ns=20_000.0)
    moving = inside.Acts(code="moving", moving=True)
    found = states(
        at,
        [
            entry(WRONG),
            entry(inside.Acts(code="good"), honest=True),
            entry(slow, honest=True, timed="yes"),
            entry(slow, timed="yes", expect="slower", layer="time"),
            entry(moving, honest=True),
            entry(moving, twice="yes", expect="unstable-plan", layer="time"),
        ],
    )
    assert [state for state, _ in found] == ["caught", "passed", "passed", "caught", "passed", "caught"]
    assert (bed.opened, bed.closed) == (1, 1)


def test_what_is_known_to_hang_is_not_waited_for_as_long_as_others(bed: Bed, at: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    run = inside.FakeLauncher.run
    monkeypatch.setattr(inside.FakeLauncher, "run", lambda self, order, *more: ran.append((type(order), more)) or run(self, order))
    assert [s for s, _ in states(at, [entry(WRONG, slow="yes"), entry(replace(WRONG, code="another"))])] == ["caught", "caught"]
    assert bed.waits == [arms.CAPTURE_S, gpu.HANG_S, arms.CAPTURE_S]
    assert {more for kind, more in ran if kind is Run} == {(), (gpu.HANG_S,)}


def test_an_error_of_ours_is_that_entrys_line_and_the_next_gets_a_judge_of_its_own(bed: Bed, at: Folders) -> None:
    with Answers(at, Walls.detect()) as answers:
        assert answers.outcome(entry(WRONG)).state == "caught"
        bed.broken = "a bug"
        first = answers.outcome(entry(inside.Acts(code="good"), honest=True))
        bed.broken = ""
        second = answers.outcome(entry(inside.Acts(code="good"), honest=True))
    assert (first.state, first.detail, second.state) == ("void", "RuntimeError: a bug", "passed")
    assert (bed.opened, bed.closed) == (2, 2)


def test_a_start_that_does_not_pass_makes_no_false_alarm(bed: Bed, at: Folders) -> None:
    (at.gpu / "norm/kernel/kernel.py").write_bytes(WRONG.source())
    ((state, detail),) = states(at, [entry(inside.Acts(code="good"), honest=True)])
    assert state == "void"
    assert "the start of task norm does not pass" in detail
    assert bed.opened == bed.closed == 1


def test_a_judge_that_cannot_be_opened_leaves_nothing_behind(bed: Bed, at: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(ready: Any) -> Any:
        raise MachineError("the card is gone")

    monkeypatch.setattr(gpu.shop, "measured", fails)
    assert states(at, [entry(WRONG)]) == [("void", "the card is gone")]
    assert bed.opened == bed.closed == 1


def test_answers_of_another_card_of_the_same_kind_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host may be another one, and the last number of the driver."""
    from keepfast.device import nvidia

    for part in ("cheats", "honest"):
        (tmp_path / part / "gpu").mkdir(parents=True)
    (tmp_path / "cheats/gpu/one.py").write_text("# id: X1\n# task: norm\n# expect: wrong\n# layer: correct\n# tries: it\n")
    at = replace(folders(), cheats=tmp_path / "cheats", honest=tmp_path / "honest")
    asked: list[str] = []
    monkeypatch.setattr(attempt.shop, "lack_of_gpu", lambda: "")
    monkeypatch.setattr(nvidia, "choose", lambda wanted: SimpleNamespace(name="NVIDIA H200"))
    monkeypatch.setattr(gpu.Stands, "verdict", lambda self, one: asked.append(one.id) or gpu.Found(True, "wrong", "correct"))
    walls, wanted, told = Walls.detect(), Wanted(("gpu",), out=tmp_path / "out.jsonl"), list[Outcome]()
    for driver, host in (("580.159.03", "a"), ("580.159.04", "b"), ("590.1", "b")):
        monkeypatch.setattr(nvidia, "drivers", lambda driver=driver: (driver, (13, 0)))
        monkeypatch.setattr(attempt, "machine", lambda walls, host=host: host)
        assert [o.state for o in attempt.run(at, wanted, walls, told.append).outcomes] == ["caught"]
    assert asked == ["X1", "X1"], "only another branch of the driver is another machine"
