"""Stop and go of a child, without any runner."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.judge import leash
from keepfast.judge.leash import CpuClock, Leash, State, Stir, Watchdog, Window

ECHO = """
import os, socket, time
s = socket.socket(fileno=3)
s.send(b"hello")
while data := s.recv(100):
    t = time.process_time()
    while time.process_time() - t < (60 if data == b"long" else 0.02): pass
    s.send(data.upper())
"""


class Child:
    def __init__(self, program: str) -> None:
        self.ours, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        channel = (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)
        self.pid = os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", program], dict(os.environ), file_actions=[channel])
        theirs.close()
        self.leash = Leash(self.pid, self.ours)

    def state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def close(self) -> None:
        self.leash.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.ours.close()


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child(ECHO)
    first = made.leash.first_stop(20)
    assert (first.said, first.state) == (b"hello", State.STOPPED)
    yield made
    made.close()


def test_a_window(child: Child) -> None:
    for word in (b"one", b"two"):
        found = child.leash.window(word, 20)
        assert isinstance(found, Window)
        assert (found.said, found.state) == (word.upper(), State.STOPPED)
        assert found.cpu_ns >= 20_000_000
        assert found.ns >= 20_000_000
        assert child.state() == "T"


def test_nothing_said_in_time(child: Child) -> None:
    found = child.leash.window(b"long", 0.001)
    assert isinstance(found, Window)
    assert (found.said, found.state) == (None, State.STOPPED)


def test_a_stopped_child_does_not_run(child: Child) -> None:
    before = child.leash.cpu.read()
    child.ours.send(b"work")
    time.sleep(0.05)
    assert child.leash.cpu.read() == before
    assert child.leash.stirred() is None


def test_pause_lets_it_run(child: Child) -> None:
    child.ours.send(b"work")
    while (stirred := child.leash.stirred()) is None:
        assert isinstance(child.leash.pause(0.2), Window)
        assert child.state() == "T"
    assert stirred is Stir.SPOKE
    assert child.leash.window(b"x", 1) is Stir.SPOKE


def test_woken_by_somebody_else(child: Child) -> None:
    os.kill(child.pid, signal.SIGCONT)
    assert child.leash.stirred() is Stir.WOKE


def test_woken_and_stopped_again(child: Child) -> None:
    os.kill(child.pid, signal.SIGCONT)
    os.kill(child.pid, signal.SIGSTOP)
    while child.state() != "T":
        time.sleep(0.001)
    assert child.leash.window(b"x", 1) is Stir.WOKE


def test_ended(child: Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    while child.state() != "Z":
        time.sleep(0.001)
    assert child.leash.stirred() is Stir.ENDED


def test_ends_inside_a_window() -> None:
    made = Child("import socket, sys; s = socket.socket(fileno=3); s.send(b'hello'); s.recv(9); sys.exit(4)")
    try:
        made.leash.first_stop(20)
        found = made.leash.window(b"x", 20)
        assert isinstance(found, Window)
        assert (found.said, found.state) == (b"", State.ENDED)
    finally:
        made.close()


def test_watchdog_kills_after_the_deadline_only() -> None:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    dog = Watchdog(pid, tick_s=0.01)
    dog.arm(60)
    dog.disarm()
    time.sleep(0.03)
    assert not dog.fired
    dog.arm(0.02)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    dog.close()
    assert dog.fired


def test_ticks_where_there_is_no_cpu_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise OSError

    exact = CpuClock(os.getpid()).read()
    with monkeypatch.context() as patch:
        patch.setattr(leash.time, "clock_gettime_ns", refuse)
        clock = CpuClock(os.getpid())
        ticks = clock.read()
    assert clock.step_ns == 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert abs(ticks - exact) <= 0.05 * exact + 10 * clock.step_ns
