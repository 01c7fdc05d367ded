"""One process to its end: its group ended at a limit, what it prints kept up to a size, the peak of its memory.

Owns the process. Must not know what it is or what its output means. Nothing is left running: the whole group ends with it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from keepfast.errors import MachineError

MOST = 8 << 20  # bytes kept of each stream; what comes after is read and dropped
DRAIN_S = 2.0  # for what is still in the pipes when the group has ended


class Ended(Struct, frozen=True):
    """`why`: "" when it ended with 0, else what happened, as the end of a sentence about it."""

    stdout: str
    stderr: str
    why: str
    cut: bool
    peak_bytes: int


def run(argv: Sequence[str], env: Mapping[str, str], cwd: str, limit_s: float) -> Ended:
    """MachineError when it cannot be started."""
    try:
        child = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        step = f"which {argv[0]}   or write its whole path"
        raise MachineError(f"{argv[0]} cannot be started: {error.strerror}", where="[engine] argv", next_step=step) from None
    pidfd = os.pidfd_open(child.pid)
    kept = {"out": bytearray(), "err": bytearray()}
    try:
        in_time, cut = _listen(child, pidfd, kept, limit_s)
    finally:
        peak = end(child)
        os.close(pidfd)
    out, err = (kept[name].decode(errors="replace") for name in ("out", "err"))
    return Ended(out, err, _why(child.returncode, in_time, limit_s), cut, peak)


def _listen(child: subprocess.Popen[bytes], pidfd: int, kept: dict[str, bytearray], limit_s: float) -> tuple[bool, bool]:
    """Reads until the process has ended, or the limit; whether it ended in time, and whether something was dropped."""
    assert child.stdout is not None
    assert child.stderr is not None
    deadline, cut, ended = time.monotonic() + limit_s, False, False
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ, "out")
        waiting.register(child.stderr, selectors.EVENT_READ, "err")
        waiting.register(pidfd, selectors.EVENT_READ, "")
        while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                if not key.data:
                    ended = True
                    waiting.unregister(key.fileobj)
                    _kill(child)  # whoever holds the pipes open ends too
                    deadline = min(deadline, time.monotonic() + DRAIN_S)
                    continue
                part = os.read(key.fd, 1 << 16)
                if not part:
                    waiting.unregister(key.fileobj)
                room = MOST - len(kept[key.data])
                kept[key.data] += part[:room]
                cut = cut or len(part) > room
    return ended, cut


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The whole group. The leader is not reaped yet, so the number is still its own."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def end(child: subprocess.Popen[bytes]) -> int:
    """Ends the group and reaps the leader; its peak of resident memory in bytes, that of children it waited for included."""
    _kill(child)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    _await_none(child.pid)
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()
    return usage.ru_maxrss * 1024


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Without reaping it: its number stays its own until `end`."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _await_none(group: int) -> None:
    """Returns when nobody of the group is left: what is dying would still be on the cores when the next start is measured."""
    until = time.monotonic() + DRAIN_S
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < until:
            os.killpg(group, 0)
            time.sleep(0.002)


def _why(code: int, in_time: bool, limit_s: float) -> str:
    if not in_time:
        return f"did not end within {limit_s:g} s"
    if code == 0:
        return ""
    return f"ended with status {code}" if code > 0 else f"was ended by signal {-code}"
