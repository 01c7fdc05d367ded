"""Launchers as the judge holds them: cases opened, orders given, faults told apart, a spare one that is always warm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from keepfast import wire
from keepfast.errors import MachineError, TaskError
from keepfast.gpu import layout as layouts
from keepfast.gpu.messages import Audit, Bank, Profile, Run, Solo, Time
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.launchers import STARTS, Collision, Launcher, Launchers, Opened
from keepfast.model import Reason

from . import fakes

RUN, TIME = Run(0, 7, 3), Time(1, 3, 0)


class Arm(Struct, frozen=True):
    arena: int
    data: bytes = b"plan of nothing"
    arena_bytes: int = 1 << 38


ARMS = (Arm(64 << 36), Arm(128 << 36))
LAYOUT = fakes.layout()


@contextmanager
def started(folder: Path, body: str = "") -> Iterator[Launchers]:
    with Launchers(argv=fakes.program(folder, fakes.LAUNCHER, body)) as made:
        yield made


@pytest.fixture
def bank() -> Iterator[tuple[Bank, int]]:
    fd = wire.memfd("bank", 4096)
    yield Bank("host", 2, 2048, 4096), fd
    os.close(fd)


def opened(launcher: Launcher, bank: tuple[Bank, int], arms: tuple[Arm, ...] = ARMS) -> Opened:
    found = launcher.open(LAYOUT, arms, bank, ())
    assert isinstance(found, Opened), found
    return found


def faulty(kind: str, arm: int, after: str = "Run") -> str:
    """A launcher that answers an order with a fault."""
    return f"""
def on(order, fds):
    fault = Fault({kind!r}, "what the driver said", {arm})
    if isinstance(order, messages.Open):
        return opened(order, fds, fault if {after!r} == "Open" else None)
    kinds = {{"Run": messages.Ran(0.0, fault=fault), "Time": Timed(fault=fault), "Audit": messages.Audited(fault)}}
    messages.send(channel, kinds[{after!r}])
"""


def doing(what: str) -> str:
    """A launcher that does something at the first order after Open."""
    return f"def on(order, fds):\n    if isinstance(order, messages.Open):\n        return opened(order, fds)\n    {what}\n"


# ---- what works


def test_a_case_is_opened_with_its_plans_and_a_bank_and_closed_for_the_next(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    with started(tmp_path) as launchers, launchers.start() as launcher:
        found = opened(launcher, bank)
        assert [k.name for arm in found.opened.kernels for k in arm] == ["rms_k", "rms_k"]
        assert (found.audit, found.opened.audit_bytes) == ("host", layouts.audit(LAYOUT).size)
        wire.check(found.audit_fd, layouts.audit(LAYOUT).size)
        ran = launcher.run(RUN)
        assert not isinstance(ran, Failure)
        assert ran.ms == 1.0
        launcher.close_case()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(found.audit_fd)
        opened(launcher, bank, ARMS[:1])
        opened(launcher, bank)  # closes the one before
        assert launchers.starts == 1


def test_audit_memory_of_the_card_comes_from_the_launcher(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    with started(tmp_path) as launchers, launchers.start() as launcher:
        found = opened(launcher, (Bank("gpu", 2, 2048, 4096), bank[1]))
        assert found.audit == "gpu"
        assert os.fstat(found.audit_fd).st_size == layouts.audit(LAYOUT).size


def test_a_spare_process_waits_and_is_the_next_one(tmp_path: Path) -> None:
    with started(tmp_path) as launchers:
        waiting = launchers._spare
        with launchers.start() as launcher:
            assert launcher._peer is waiting
            assert launchers._spare is not None
            pids = [waiting.process.pid, launchers._spare.process.pid]  # type: ignore[union-attr]
        assert not Path(f"/proc/{pids[0]}").exists()
    assert not Path(f"/proc/{pids[1]}").exists()


def test_nothing_is_left_open(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with started(tmp_path, faulty("fault", 0)) as launchers:
        for _ in range(2):
            with launchers.start() as launcher:
                opened(launcher, bank)
                assert isinstance(launcher.run(RUN), Failure)
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_environment_is_small(tmp_path: Path, bank: tuple[Bank, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "x")
    body = "assert 'SECRET_KEY' not in os.environ and os.environ['CUDA_VISIBLE_DEVICES'] == 'GPU-1', os.environ"
    with Launchers("GPU-1", argv=fakes.program(tmp_path, fakes.LAUNCHER, body)) as launchers, launchers.start() as launcher:
        opened(launcher, bank)


# ---- collisions


def test_a_taken_address_costs_another_start(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    body = "def on(order, fds):\n    opened(order, fds, Fault('collision', 'taken') if number < 2 else None)"
    with started(tmp_path, body) as launchers, launchers.start() as launcher:
        opened(launcher, bank)
        assert (launchers.starts, launchers.collisions) == (3, 2)


def test_addresses_that_are_always_taken_are_said(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    with started(tmp_path, faulty("collision", -1, "Open")) as launchers, launchers.start() as launcher:
        with pytest.raises(Collision, match="case main: the addresses of its plans were taken in 5 launchers"):
            launcher.open(LAYOUT, ARMS, bank, ())
        assert launchers.collisions == STARTS
        with pytest.raises(Collision, match="overlap"):
            launcher.open(LAYOUT, (ARMS[0], Arm(ARMS[0].arena + (1 << 37))), bank, ())


# ---- faults


@pytest.mark.parametrize(
    ("kind", "after", "reason", "detail"),
    [
        ("fault", "Run", Reason.CRASH, "case main: what the driver said"),
        ("fault", "Time", Reason.CRASH, "case main: what the driver said"),
        ("launch", "Run", Reason.CRASH, "case main: its launch was refused: what the driver said"),
        ("not-a-plan", "Open", Reason.NOT_A_PLAN, "case main: what the driver said"),
        ("fault", "Audit", Reason.CRASH, "case main: what the driver said"),
    ],
)
def test_faults_of_the_subject(tmp_path: Path, bank: tuple[Bank, int], kind: str, after: str, reason: Reason, detail: str) -> None:
    with started(tmp_path, faulty(kind, 0, after)) as launchers, launchers.start() as launcher:
        found = launcher.open(LAYOUT, ARMS, bank, ())
        if after != "Open":
            orders = {"Run": lambda: launcher.run(RUN), "Time": lambda: launcher.time(TIME), "Audit": lambda: launcher.audit(Audit(0, 0))}
            found = orders[after]()
        assert found == Failure(reason, detail)


@pytest.mark.parametrize(
    ("kind", "arm", "what"),
    [
        ("fault", 1, "the opponent, which passed before: what the driver said"),
        ("not-a-plan", 1, "the opponent, which passed before: what the driver said"),
        ("fault", -1, "launcher, case main: what the driver said"),
        ("machine", -1, "launcher, case main: what the driver said"),
        ("machine", 0, "launcher, case main: what the driver said"),
    ],
)
def test_faults_of_the_machine(tmp_path: Path, bank: tuple[Bank, int], kind: str, arm: int, what: str) -> None:
    with started(tmp_path, faulty(kind, arm)) as launchers, launchers.start() as launcher:
        opened(launcher, bank)
        with pytest.raises(MachineError, match=re.escape(what)):
            launcher.run(RUN)


def test_a_case_that_does_not_fit_is_the_tasks(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    with started(tmp_path, faulty("memory", -1, "Open")) as launchers, launchers.start() as launcher:
        with pytest.raises(TaskError, match="case main does not fit on this card: what the driver said") as caught:
            launcher.open(LAYOUT, ARMS, bank, ())
        assert "make the case smaller" in caught.value.next_step


def test_a_case_can_be_opened_after_a_fault(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    body = doing("messages.send(channel, Ran(1.0, fault=Fault('fault', 'illegal address', 0) if number == 0 else None))")
    with started(tmp_path, body) as launchers, launchers.start() as launcher:
        opened(launcher, bank)
        assert isinstance(launcher.run(RUN), Failure)
        with pytest.raises(MachineError, match="no launcher any more"):
            launcher.run(RUN)
        opened(launcher, bank)
        assert not isinstance(launcher.run(RUN), Failure)


# ---- silence


@pytest.mark.parametrize("order", [RUN, TIME, Solo(0, 3, 2), Profile(0)])
def test_a_launch_that_does_not_end(tmp_path: Path, bank: tuple[Bank, int], order: Run | Time | Solo | Profile) -> None:
    with started(tmp_path, doing("time.sleep(600)")) as launchers, launchers.start() as launcher:
        opened(launcher, bank)
        give = {Run: launcher.run, Time: launcher.time, Solo: launcher.solo, Profile: launcher.profile}[type(order)]
        assert give(order, timeout_s=0.2) == Failure(Reason.HANG, "case main: a launch had not ended after 0.2 s")  # type: ignore[operator]


def test_silence_while_the_opponent_runs_is_the_machines(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    with started(tmp_path, doing("time.sleep(600)")) as launchers, launchers.start() as launcher:
        opened(launcher, bank)
        with pytest.raises(MachineError, match="gave no answer"):
            launcher.run(Run(1, 7, 3), timeout_s=0.2)
        opened(launcher, bank)
        with pytest.raises(MachineError, match="gave no answer"):
            launcher.audit(Audit(0, 0), timeout_s=0.2)


def test_a_driver_that_breaks_under_the_subject(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    with started(tmp_path, doing("os.kill(os.getpid(), signal.SIGSEGV)")) as launchers, launchers.start() as launcher:
        opened(launcher, bank)
        assert launcher.run(RUN) == Failure(Reason.CRASH, "case main: the driver failed while it ran: it was ended by SIGSEGV")
        opened(launcher, bank)
        with pytest.raises(MachineError, match="SIGSEGV"):
            launcher.run(Run(1, 7, 3))


def test_a_launcher_of_ours_that_fails_is_the_machines(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    with started(tmp_path, doing("raise SystemExit('no such thing')")) as launchers, launchers.start() as launcher:
        opened(launcher, bank)
        with pytest.raises(MachineError, match=r"it exited \(code 1\); its last words: no such thing") as caught:
            launcher.run(RUN)
        assert caught.value.where == "launcher, case main"


@pytest.mark.parametrize("body", ["raise SystemExit('no cuda')", "def main(): raise SystemExit('no cuda')"])
def test_a_launcher_that_does_not_start(tmp_path: Path, bank: tuple[Bank, int], body: str) -> None:
    with started(tmp_path, body) as launchers, launchers.start() as launcher, pytest.raises(MachineError, match="no cuda"):
        launcher.open(LAYOUT, ARMS, bank, ())


def test_an_answer_that_is_no_record(tmp_path: Path, bank: tuple[Bank, int]) -> None:
    with started(tmp_path, doing("wire.send(channel, {'bytes': 3})")) as launchers, launchers.start() as launcher:
        opened(launcher, bank)
        with pytest.raises(MachineError, match="not a record"):
            launcher.run(RUN)
