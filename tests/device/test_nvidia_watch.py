"""Who uses a card, what holds its clocks, and what makes an evaluation void: against answers of NVML."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keepfast.device import nvidia, nvidia_health, nvidia_watch
from tests.device.fake_nvml import GIB, FakeNvml, process

UUID = "GPU-000aaaa-0000-0000-0000-000000000000"


@pytest.fixture(autouse=True)
def outermost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As outside containers, wherever the tests run."""
    monkeypatch.setattr(nvidia_health, "_in_container", lambda: False)


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Another process, which is none of ours."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setattr(nvidia_health, "_family", lambda ancestor: {ancestor})
        yield child.pid
        child.communicate()


def test_a_quiet_card() -> None:
    look = nvidia.health(UUID, FakeNvml({}))
    assert (look.processes, look.busy, look.spoiled, look.noted) == ((), (), (), ("idle",))
    assert (look.temperature, look.sm_mhz, look.memory_mhz, look.utilisation, look.watts) == (34, 345, 3201, 0, 75.5)


def test_what_a_card_does_not_say_is_none() -> None:
    silent = dict.fromkeys(
        (
            "DeviceGetTemperature",
            "DeviceGetClockInfo",
            "DeviceGetUtilizationRates",
            "DeviceGetPowerUsage",
            "DeviceGetComputeRunningProcesses",
        )
    )
    look = nvidia.health(UUID, FakeNvml(silent | {"DeviceGetCurrentClocksEventReasons": None}))
    assert (look.temperature, look.sm_mhz, look.utilisation, look.watts, look.processes) == (None, None, None, None, ())


def test_processes_are_named_and_ours_are_no_neighbours(stranger: int) -> None:
    ask = FakeNvml({"DeviceGetComputeRunningProcesses": [process(os.getpid()), process(stranger, 3 * GIB), process(2**22 - 1)]})
    look = nvidia.health(UUID, ask)
    assert [(p.pid, p.kind, p.ours) for p in look.processes] == [(os.getpid(), "compute", True), (stranger, "compute", False)]
    (other,) = look.busy
    assert other.words() == f"{other.name} (pid {stranger}), 3.0 GiB"
    assert other.name.startswith("python")


def test_children_are_ours() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        look = nvidia.health(UUID, FakeNvml({"DeviceGetComputeRunningProcesses": [process(child.pid, None)]}))
        child.communicate()
    assert [p.ours for p in look.processes] == [True]
    assert look.busy == ()


def test_a_display_server_is_tolerated_and_other_drawing_is_not(stranger: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = {"DeviceGetGraphicsRunningProcesses": [process(stranger)]}
    assert [p.pid for p in nvidia.health(UUID, FakeNvml(drawing)).busy] == [stranger]
    monkeypatch.setattr(nvidia_health, "_name", lambda pid: "gnome-shell")
    look = nvidia.health(UUID, FakeNvml(drawing))
    assert look.busy == ()
    assert [(p.name, p.display) for p in look.processes] == [("gnome-shell", True)]
    both = drawing | {"DeviceGetComputeRunningProcesses": [process(stranger)]}
    assert [p.kind for p in nvidia.health(UUID, FakeNvml(both)).busy] == ["compute"], "one that computes is no display server"


def test_in_a_container_foreign_numbers_mean_nothing(stranger: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_health, "_in_container", lambda: True)
    look = nvidia.health(UUID, FakeNvml({"DeviceGetComputeRunningProcesses": [process(stranger), process(2**22 - 1)]}))
    assert [p.hidden for p in look.processes] == [True, True], "the first has no card open, so the number is someone else's"
    assert look.busy == ()
    assert look.processes[0].words() == "a process outside this container, 1.0 GiB"


@pytest.mark.parametrize(
    ("bits", "spoiled", "noted"),
    [
        (0, (), ()),
        (0x001, (), ("idle",)),
        (0x004, (), ("power cap",)),
        (0x006, (), ("clocks set by the user", "power cap")),
        (0x008, ("hardware slowdown",), ()),
        (0x024, ("too hot (software slowdown)",), ("power cap",)),
        (0x0C8, ("hardware slowdown", "too hot (hardware slowdown)", "power brake"), ()),
        (0x010, ("held to the clocks of another card (sync boost)",), ()),
        (0x1000, (), ()),
    ],
)
def test_throttle_reasons_in_words(bits: int, spoiled: tuple[str, ...], noted: tuple[str, ...]) -> None:
    look = nvidia.health(UUID, FakeNvml({"DeviceGetCurrentClocksEventReasons": bits}))
    assert (look.spoiled, look.noted) == (spoiled, noted)
    old = {"DeviceGetCurrentClocksEventReasons": None, "DeviceGetCurrentClocksThrottleReasons": bits}
    assert nvidia.health(UUID, FakeNvml(old)).spoiled == spoiled


# --------------------------------------------------------------------------------------------- Watcher


def test_nothing_happened() -> None:
    with nvidia.Watcher(UUID, FakeNvml({})) as watcher:
        assert watcher.fit(0) == ()
        assert watcher.before() == ()
        assert watcher.after() == ()
        assert watcher.notes == ("idle",)


def counting(**values: Any) -> dict[str, Any]:
    heat, boost = SimpleNamespace(violationTime=values.get("heat", 0)), SimpleNamespace(violationTime=values.get("boost", 0))
    return {
        "DeviceGetViolationStatus": lambda policy: {1: heat, 2: boost}[policy],
        "DeviceGetTotalEccErrors": lambda kind, since: (values.get("corrected", 0), values.get("uncorrected", 0))[kind],
        "DeviceGetRemappedRows": (values.get("rows", 0), 0, 0, 0),
        "DeviceGetPcieReplayCounter": values.get("replays", 0),
    }


@pytest.mark.parametrize(
    ("change", "void", "noted"),
    [
        ({"heat": 900_000}, (), ()),
        ({"heat": 35_000_000}, ("the card lost 35 ms to heat",), ()),
        ({"boost": 2_000_000}, ("the card was held to another card's clocks for 2 ms",), ()),
        ({"uncorrected": 2}, ("2 uncorrectable errors of the card's memory",), ()),
        ({"rows": 1}, ("1 pages of the card's memory were replaced",), ()),
        ({"corrected": 3, "replays": 4}, (), ("3 corrected errors of the card's memory", "4 transfers over PCIe were repeated")),
    ],
)
def test_what_is_counted_meanwhile(change: dict[str, int], void: tuple[str, ...], noted: tuple[str, ...]) -> None:
    ask = FakeNvml(counting())
    with nvidia.Watcher(UUID, ask) as watcher:
        assert watcher.before() == ()
        ask.cards[0] |= counting(**change)
        assert watcher.after() == void
        assert watcher.notes == ("idle", *noted)
        assert watcher.after() == (), "said once"


def test_a_hot_card_is_void_before_and_after() -> None:
    ask = FakeNvml({})
    with nvidia.Watcher(UUID, ask) as watcher:
        watcher.before()
        ask.cards[0]["DeviceGetCurrentClocksEventReasons"] = 0x44
        assert watcher.after() == ("the card runs slower than it could: too hot (hardware slowdown)",)
        assert watcher.before() == watcher.fit(0) == ("the card runs slower than it could: too hot (hardware slowdown)",)
        assert watcher.notes == ("power cap",)


def test_another_process_that_appears_makes_it_void_once(stranger: int) -> None:
    ask = FakeNvml({})
    with nvidia.Watcher(UUID, ask) as watcher:
        watcher.before()
        ask.cards[0]["DeviceGetComputeRunningProcesses"] = [process(stranger), process(os.getpid())]
        (why,) = watcher.after()
        assert f"(pid {stranger}), 1.0 GiB began to use the card" in why
        assert watcher.after() == (), "it was there when this evaluation began"


def test_fit_waits_for_others_and_says_who_it_is(stranger: int) -> None:
    ask = FakeNvml({"DeviceGetComputeRunningProcesses": [process(stranger)]})
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            ask.cards[0]["DeviceGetComputeRunningProcesses"] = []

    with nvidia.Watcher(UUID, ask) as watcher:
        (why,) = watcher.fit(0)
        assert f"(pid {stranger}), 1.0 GiB uses the card" in why
        assert slept == []
        assert watcher.fit(60.0, sleep) == ()
        assert slept == [nvidia_watch.LOOK_S] * 3


def test_fit_is_bounded(stranger: int) -> None:
    with nvidia.Watcher(UUID, FakeNvml({"DeviceGetComputeRunningProcesses": [process(stranger)]})) as watcher:
        assert len(watcher.fit(0.1)) == 1


def test_xids_of_the_card_make_it_void_and_those_of_programs_do_not() -> None:
    ask = FakeNvml({}, system={"EventSetCreate": object()})
    with nvidia.Watcher(UUID, ask) as watcher:
        ask.events = [79]
        watcher.before()
        ask.events = [31, 13, 48]
        assert watcher.after() == ("the driver reported an error of the card, Xid 48",)
        assert watcher.notes[1:] == ("Xid 31, which a program can cause", "Xid 13, which a program can cause")
        assert watcher.after() == ()
    assert "EventSetFree" in ask.asked


def test_without_events_the_kernels_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("4,1,1,-;NVRM: Xid (PCI:0000:01:00): 79, old\n")
    ask = FakeNvml({"DeviceGetSupportedEventTypes": None})
    found = nvidia_watch.xids(ask, 0, str(log))
    with log.open("a") as file:
        file.write("4,2,2,-;NVRM: Xid (PCI:0000:01:00): 48, pid=1\n6,3,3,-;else\n4,4,4,-;NVRM: Xid (PCI:0000:02:00): 94, another card\n")
    assert found.since() == (48,)
    assert found.since() == ()
    found.close()


def test_with_neither_nobody_knows(tmp_path: Path) -> None:
    found = nvidia_watch.xids(FakeNvml({"DeviceGetSupportedEventTypes": 0}), 0, str(tmp_path / "none"))
    assert found.since() is None
    found.close()


def test_older_cards_retire_pages() -> None:
    ask = FakeNvml({"DeviceGetRetiredPages": lambda cause: [1, 2] if cause else None})
    assert nvidia_watch.counters(ask, 0).retired == 2
    assert nvidia_watch.counters(FakeNvml({}), 0).retired is None
