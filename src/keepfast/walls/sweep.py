"""Finding and ending processes through /proc, for machines without PID namespaces.

Must not know why. With a system call filter nothing leaves the process group of the walled process; without one (strength `none`)
a process may start a session of its own and is found as a descendant, which is the best that can be done there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec import Struct

PR_SET_CHILD_SUBREAPER = 36


class Process(Struct, frozen=True):
    pid: int
    state: str
    parent: int
    group: int
    session: int
    tasks: int
    uid: int


def processes() -> tuple[Process, ...]:
    found = (_read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return tuple(p for p in found if p is not None)


def users() -> set[int]:
    return {p.uid for p in processes()}


def mapped(uids: range) -> set[int]:
    """Those of `uids` that exist in this process's user namespace; a container may have few."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        ranges = [(int(first), int(first) + int(count)) for first, _, count in (line.split() for line in file)]
    return {uid for uid in uids if any(low <= uid < high for low, high in ranges)}


def tasks_of(uid: int) -> int:
    """Threads that the limit on processes counts for this user now."""
    return sum(p.tasks for p in processes() if p.uid == uid)


def adopt_orphans() -> None:
    """Makes this process the parent of what its descendants leave behind, so that it can be found and reaped."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def group(leader: int, uid: int | None, home: str) -> None:
    """Kills `leader`, its process group and session, their descendants, all of `uid`, and adopted orphans whose HOME is `home`.

    Returns when only zombies are left. `leader` must be an unreaped child of this process, so that its number is still its own.
    """
    while True:
        _signal(os.killpg, leader)
        ours = _belonging(processes(), leader, uid, home)
        doomed = [p.pid for p in ours if p.state not in "ZX"]
        for pid in doomed:
            _signal(os.kill, pid)
        _reap(p.pid for p in ours if p.pid != leader)
        if not doomed:
            return
        time.sleep(0.001)


def _belonging(alive: tuple[Process, ...], leader: int, uid: int | None, home: str) -> tuple[Process, ...]:
    ours = {p.pid for p in alive if leader in (p.pid, p.group, p.session) or p.uid == uid or _is_orphan(p, home)}
    while more := {p.pid for p in alive if p.parent in ours} - ours:
        ours |= more
    return tuple(p for p in alive if p.pid in ours)


def _is_orphan(process: Process, home: str) -> bool:
    if process.parent != os.getpid():
        return False
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            return f"HOME={home}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def _signal(send: Callable[[int, int], None], number: int) -> None:
    with suppress(ProcessLookupError):
        send(number, signal.SIGKILL)


def _reap(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _read(pid: int) -> Process | None:
    """One process, or None when it is gone. The name in /proc/PID/stat may hold spaces and brackets: count from its end."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        uid = os.stat(f"/proc/{pid}").st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent, group_id, session = fields[0].decode(), *(int(f) for f in fields[1:4])
    return Process(pid, state, parent, group_id, session, int(fields[17]), uid)
