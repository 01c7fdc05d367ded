"""Stop and go: a child process that runs only inside windows which the judge opens and closes, with clocks on both.

Owns the signals, the confirmation of every stop, the elapsed and CPU clocks, and the bound on waiting for a stop. The child
is hostile: it may wake itself, stop itself, refuse to be stopped, end, or talk too early. Must not know what is said on
the channel, tasks or verdicts.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from enum import Enum
from pathlib import Path

from msgspec import Struct

CONTINUE, STOP = int(signal.SIGCONT), int(signal.SIGSTOP)
GRACE_S = 2.0  # what a stop may take, beyond the time allowed for the window
MAX_ANSWER = 8192


class State(Enum):
    STOPPED = "stopped by us"
    SELF_STOPPED = "stopped by a signal of its own"
    ENDED = "ended"
    UNSTOPPABLE = "did not stop and was killed"


class Stir(Enum):
    """What a child did while it had to be stopped, or at the moment it was spoken to."""

    ENDED = "ended while it was stopped"
    WOKE = "woke itself while it was stopped, and could work when no clock was running"
    SPOKE = "sent bytes that nobody asked for"
    CLOSED = "closed the judge's channel"


class Window(Struct, frozen=True):
    """One stretch in which the child ran.

    `ns` elapsed, from before it was continued until its stop was confirmed; `cpu_ns` CPU time of all its threads in it.
    `said` is what came first on the channel: None for nothing in the time allowed, empty when it closed the channel.
    """

    ns: int
    cpu_ns: int
    said: bytes | None
    state: State


class CpuClock:
    """CPU time of a process with all its threads, in ns. `step_ns` is its resolution.

    The process's own CPU clock where the kernel has it, else the tick counts of /proc/<pid>/stat.
    """

    def __init__(self, pid: int) -> None:
        self.pid, self.id, self.step_ns = pid, (~pid << 3) | 2, 1  # 2: CPUCLOCK_SCHED, see clock_getcpuclockid(3)
        try:
            time.clock_gettime_ns(self.id)
        except OSError:
            self.id, self.step_ns = 0, 10**9 // os.sysconf("SC_CLK_TCK")

    def read(self) -> int:
        """The time so far; also of one that has ended and is not reaped, as far as the kernel says."""
        if self.id:
            try:
                return time.clock_gettime_ns(self.id)
            except OSError:
                pass  # it has ended; the tick counts outlive it
        fields = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) * (10**9 // os.sysconf("SC_CLK_TCK"))


class Watchdog:
    """Kills a child when a deadline passes: a thread in vfork, for one, keeps the others from ever being stopped.

    A wait for a stop has no time limit of its own, and a thread is the only thing that costs nothing inside the window.
    """

    def __init__(self, pid: int, tick_s: float = 0.5) -> None:
        self.pid, self.tick_s, self.fired = pid, tick_s, False
        self._deadline: float | None = None
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="keepfast-watchdog", daemon=True)
        self._thread.start()

    def arm(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def disarm(self) -> None:
        """After this returns the child is not killed any more, so that it may be reaped."""
        with self._lock:
            self._deadline = None

    def close(self) -> None:
        self.disarm()
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(self.tick_s):
            with self._lock:
                if self._deadline is not None and time.monotonic() > self._deadline:
                    self.fired, self._deadline = True, None
                    os.kill(self.pid, signal.SIGKILL)


class Leash:
    """Holds one child. It has to be a direct child that nobody else reaps while the leash is open."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid, self.channel = pid, channel
        self.cpu, self.watchdog = CpuClock(pid), Watchdog(pid)
        self._timeout_s = 0.0
        channel.settimeout(None)  # blocking with SO_RCVTIMEO: one system call less in the window than Python's own timeout

    def close(self) -> None:
        self.watchdog.close()

    def first_stop(self, timeout_s: float) -> Window:
        """For a child that runs since it was started: waits for its first words, then stops it."""
        return self._window(timeout_s)

    def window(self, message: bytes, timeout_s: float, fds: tuple[int, ...] = ()) -> Window | Stir:
        """Hand over a message while the child is stopped, let it run until it answers, stop it again.

        A `Stir` instead when it is not as it was left, or does not take the message; then it has not been continued.
        """
        if stir := self.stirred():
            return stir
        try:
            socket.send_fds(self.channel, [message], fds) if fds else self.channel.send(message)
        except OSError:
            return Stir.CLOSED
        # Again: the message itself may wake it, by a signal it asked for on input.
        return self.stirred() or self._window(timeout_s)

    def pause(self, seconds: float) -> Window | Stir:
        """Let it run for a while with nothing to do. What it says meanwhile stays in the channel."""
        if stir := self.stirred():
            return stir
        self.watchdog.arm(seconds + GRACE_S)
        cpu, t0 = self.cpu.read(), time.perf_counter_ns()
        os.kill(self.pid, CONTINUE)
        time.sleep(seconds)
        os.kill(self.pid, STOP)
        event = self._await_stop()
        return self._closed(time.perf_counter_ns() - t0, cpu, None, event)

    def stirred(self) -> Stir | None:
        """What the child did since its stop was confirmed; None when it is as the judge left it."""
        events = os.WSTOPPED | os.WCONTINUED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        event = os.waitid(os.P_PID, self.pid, events)
        if event is None:
            return Stir.SPOKE if self.unread() else None
        return Stir.ENDED if event.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED) else Stir.WOKE

    def unread(self) -> bool:
        """Whether bytes wait in the channel."""
        try:
            return bool(self.channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except (BlockingIOError, ConnectionResetError):
            return False

    def _limit_wait(self, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            whole, part = divmod(max(timeout_s, 1e-3), 1.0)
            self.channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(whole), int(part * 1e6)))
            self._timeout_s = timeout_s

    def _window(self, timeout_s: float) -> Window:
        """The clock. Between its two readings: continue, receive, stop, wait for the stop, and nothing else."""
        self._limit_wait(timeout_s)
        self.watchdog.arm(timeout_s + GRACE_S)
        pid, kill, receive, now = self.pid, os.kill, self.channel.recv, time.perf_counter_ns
        said: bytes | None
        cpu = self.cpu.read()
        t0 = now()
        kill(pid, CONTINUE)
        try:
            said = receive(MAX_ANSWER)
        except BlockingIOError:
            said = None
        except ConnectionResetError:
            said = b""
        kill(pid, STOP)
        event = self._await_stop()
        t1 = now()
        return self._closed(t1 - t0, cpu, said, event)

    def _await_stop(self) -> os.waitid_result | None:
        """The stop, taken from the kernel so that a second one would be seen; None when the child ended."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED)
        except ChildProcessError:
            return None

    def _closed(self, ns: int, cpu: int, said: bytes | None, event: os.waitid_result | None) -> Window:
        self.watchdog.disarm()
        if event is not None:
            state = State.STOPPED if event.si_status == STOP else State.SELF_STOPPED
        else:
            state = State.UNSTOPPABLE if self.watchdog.fired else State.ENDED
        return Window(ns, max(0, self.cpu.read() - cpu), said, state)
