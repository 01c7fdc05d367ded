"""The GPU of one command: what is started on the card and when, and that nothing of it is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keepfast import shop, station
from keepfast.device import nvidia
from keepfast.errors import MachineError
from keepfast.judge.gpu.judge import Card, GpuJudge
from keepfast.model import Task
from keepfast.station import Station
from tests.device.fake_nvml import FakeNvml
from tests.judge.gpu.stand import MACHINE, gpu_task

GIB = 1 << 30


class Log:
    """What was made and closed, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.given: dict[str, tuple[Any, ...]] = {}
        self.in_the_way: tuple[str, ...] = ()
        self.already: tuple[str, ...] = ()
        self.since: tuple[str, ...] = ()

    def maker(self, name: str) -> Any:
        def make(*given: Any) -> Any:
            self.said.append(f"{name} made")
            self.given[name] = given
            return SimpleNamespace(close=lambda: self.said.append(f"{name} closed"), **self.parts(name))

        return make

    def parts(self, name: str) -> dict[str, Any]:
        if name == "watcher":
            return {"fit": lambda timeout_s: self.in_the_way, "before": lambda: self.already, "after": lambda: self.since}
        if name == "oracle":
            return {"measure": lambda: SimpleNamespace(numbers=(("copy_GBps", 4000.0),))}
        return {"start": self.launcher} if name == "launchers" else {}

    @contextmanager
    def launcher(self) -> Iterator[Any]:
        yield SimpleNamespace(bench=lambda: SimpleNamespace(numbers=(("l2_bytes", 6e7),)))
        self.said.append("launcher closed")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    made = Log()
    for name in ("Oracle", "Launchers", "Pool", "Watcher"):
        monkeypatch.setattr(station, name, made.maker(name.lower()))
    monkeypatch.setattr(station.native, "library", lambda name: Path(f"/lib/{name}.so"))
    return made


def card(slice: str = "") -> nvidia.Card:
    return nvidia.Card(0, "NVIDIA H200", "GPU-1", (9, 0), 140 * GIB, 139 * GIB, "00000000:01:00.0", 2, slice=slice)


def opened(task: Task | None = None, slice: str = "") -> Station:
    return Station(task or gpu_task(Path("/nowhere")), SimpleNamespace(strength="walls"), card(slice))  # type: ignore[arg-type]


# ---- the card


def test_what_the_judge_knows_of_the_card(log: Log) -> None:
    made: Card = opened()
    assert (made.memory, made.uuid, made.arch) == (140 * GIB, "GPU-1", "sm_90")
    assert log.said == []


def test_a_fit_card_is_waited_for(log: Log) -> None:
    made = opened()
    made.fit()
    assert log.given["watcher"] == ("GPU-1",)
    assert made.unfit() == ""
    log.since = ("the card lost 12 ms to heat", "train.py (pid 7) began to use the card")
    assert made.unfit() == "the card lost 12 ms to heat; train.py (pid 7) began to use the card"


@pytest.mark.parametrize("when", ["in_the_way", "already"])
def test_a_card_that_does_not_become_fit(log: Log, when: str) -> None:
    setattr(log, when, ("train.py (pid 7) uses the card", "too hot"))
    with pytest.raises(MachineError, match="not fit to measure on: train.py \\(pid 7\\) uses the card; too hot") as error:
        opened().fit()
    assert "keepfast doctor" in error.value.next_step


# ---- what is started


def test_each_is_started_when_it_is_first_needed_and_once(log: Log) -> None:
    made = opened()
    assert made.oracle is made.oracle
    assert made.launchers is made.launchers
    assert log.said == ["oracle made", "launchers made"]
    assert log.given["oracle"] == (made.task, "GPU-1")
    assert log.given["launchers"] == ("GPU-1",)


def test_a_slice_of_a_card_is_what_processes_see(log: Log) -> None:
    made = opened(slice="MIG-1")
    assert made.pool
    assert made.oracle
    assert log.given["oracle"][1] == log.given["pool"][1].card == "MIG-1"


def test_workers_are_warm_with_what_the_task_needs(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(station.importlib.util, "find_spec", lambda name: object() if name == "torch" else None)
    made = opened()
    assert made.pool
    walls, spec = log.given["pool"]
    assert walls is made.walls
    assert (spec.arena_library, spec.size, spec.libraries) == ("/lib/arena.so", station.WARM, ("torch",))
    assert spec.max_bytes == 70 * GIB
    assert spec.arena_bytes == 192 * GIB  # whole steps of 64 GiB, that can hold the card's memory
    assert spec.devices[:2] == ("/dev/nvidia2", "/dev/nvidiactl")


@pytest.mark.parametrize(
    ("languages", "libraries"), [(("cuda",), ()), (("triton",), ("torch", "triton")), (("cuda", "torch"), ("torch", "triton"))]
)
def test_cuda_does_without_torch(log: Log, monkeypatch: pytest.MonkeyPatch, languages: tuple[str, ...], libraries: tuple[str, ...]) -> None:
    monkeypatch.setattr(station.importlib.util, "find_spec", lambda name: object())
    assert opened(gpu_task(Path("/nowhere"), languages=languages)).pool
    assert log.given["pool"][1].libraries == libraries


def test_ceilings_are_those_of_torch_and_of_the_driver(log: Log) -> None:
    assert opened().ceilings() == (("copy_GBps", 4000.0), ("l2_bytes", 6e7))
    assert log.said[-1] == "launcher closed"


# ---- and that nothing is left


def test_closing_ends_what_was_started_workers_first(log: Log) -> None:
    made = opened()
    assert made.oracle
    assert made.pool
    made.fit()
    log.said.clear()
    made.close()
    made.close()
    assert log.said == ["pool closed", "oracle closed", "watcher closed"]


def test_closing_starts_nothing(log: Log) -> None:
    opened().close()
    assert log.said == []


def test_it_is_closed_at_the_end_of_the_process(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Any] = []
    monkeypatch.setattr(station.atexit, "register", ends.append)
    made = opened()
    assert made.oracle
    (end,) = ends
    end()
    assert log.said == ["oracle made", "oracle closed"]


# ---- what a command makes of it


def on_the_card(made: Station, folder: Path) -> shop.Shop:
    walls: Any = SimpleNamespace(strength="walls", folder=lambda: folder)
    return shop.Shop(SimpleNamespace(), made.task, walls, MACHINE, None, made)  # type: ignore[arg-type]


def test_a_shop_with_a_card_has_its_ceilings_and_its_judge(log: Log, tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    builds.mkdir()
    ready = shop.measured(on_the_card(opened(), builds))
    assert ready.machine.ceilings == (("copy_GBps", 4000.0), ("l2_bytes", 6e7))
    with shop.judge(ready, lambda event: None, lambda code: None) as judge:
        assert isinstance(judge, GpuJudge)
        assert judge.bench.machine.ceilings == ready.machine.ceilings
        assert (judge.bench.card, judge.bench.builds) == (ready.station, builds)
    assert not builds.exists()
    assert "oracle closed" not in log.said  # the next judge of this command has it


def test_a_judge_that_fails_leaves_nothing(log: Log, tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    builds.mkdir()
    with pytest.raises(MachineError), shop.judge(on_the_card(opened(), builds), lambda event: None, lambda code: None):
        raise MachineError("the card fell off the bus")
    assert not builds.exists()


def test_a_task_for_a_gpu_chooses_a_card_before_anything_is_started(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ask = FakeNvml({})
    (known,) = nvidia.cards(ask)
    monkeypatch.setattr(shop.nvidia, "choose", lambda wanted=None: known)
    monkeypatch.setattr(shop.nvidia, "fingerprint", lambda walls, uuid: MACHINE)
    monkeypatch.setattr(shop.Repo, "find", lambda folder: SimpleNamespace(root=folder))
    monkeypatch.setattr(shop, "detect_walls", lambda options: SimpleNamespace(strength="walls"))
    monkeypatch.setattr(shop, "load", lambda folder: gpu_task(tmp_path))
    monkeypatch.setattr(shop, "task_folder", lambda folder: folder)
    made = shop.open_shop(tmp_path)
    assert made.station is not None
    assert (made.station.uuid, made.machine, made.library) == (known.uuid, MACHINE, None)
    assert log.said == []
