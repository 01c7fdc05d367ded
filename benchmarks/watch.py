"""Is the machine as it was? Processes, files, memory, shared memory and the judge's own state, against a moment before.

Owns what counts as left behind. Must not know what was run in between.

On a machine that other people use (`shared`) only what can be told apart from their doing counts: files of walled users and in the
judge's own folder; memory that lies in files in memory, and the judge's own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from keepfast.walls.base import UIDS

MEMORY_KB = 64 << 10
WAIT_S = 3.0  # memory of a process that was killed is given back a moment later
KERNEL_THREADS = 2
IPC = ("shm", "msg", "sem")
OTHERS = "/tmp/keepfast-"  # folders of other judges, on a shared machine
OUR_OWN = ("__pycache__",)  # Python's, whoever imports


class Process(Struct, frozen=True):
    pid: int
    began: int  # clock ticks since boot: with the id it names one process
    parent: int
    uid: int
    zombie: bool
    words: str


class Self(Struct, frozen=True):
    """The judge's own process."""

    descriptors: int
    threads: int
    cores: tuple[int, ...]
    handlers: str  # signals blocked, ignored and caught


class Watch:
    """A picture of the machine. `own`: the judge's folder for temporary files, `builds` in it may grow."""

    def __init__(self, own: Path, folders: tuple[Path, ...], *, shared: bool) -> None:
        self.own, self.shared = own, shared
        self.processes = {(p.pid, p.began) for p in processes()}
        self.files = Files(tuple(f for f in folders if f.is_dir()), own)
        self.inside = names(own)
        self.memory, self.ipc, self.me = memory_kb(shared), ipc(), me()

    def left(self) -> tuple[str, ...]:
        """What is there now and was not, in words. Files are said once."""
        return (*self._processes(), *self._files(), *self._memory(), *self._state())

    def _processes(self) -> Iterator[str]:
        alive = {p.pid: p for p in processes()}
        fresh = [p for p in alive.values() if (p.pid, p.began) not in self.processes]
        for p in fresh:
            if self._ours(p, alive):
                yield f"process {p.pid} of user {p.uid}, started since: {p.words[:80]}"

    def _ours(self, process: Process, alive: dict[int, Process]) -> bool:
        """Descends from this process, or from nobody any more. What others' programs start has a parent that was there before."""
        if process.zombie and process.parent != os.getpid():
            return False
        while process.parent in alive:
            if process.parent in (os.getpid(), KERNEL_THREADS):
                return process.parent != KERNEL_THREADS
            if process.parent == 1:
                return not self.shared or process.uid in UIDS
            process = alive[process.parent]
            if (process.pid, process.began) in self.processes:
                return False
        return True

    def _files(self) -> Iterator[str]:
        for path in self.files.fresh():
            if not self.shared or (_owner(path) in UIDS and not path.startswith(OTHERS)):
                yield f"file {path}"
        now = names(self.own)
        for name in sorted(now - self.inside):
            yield f"file {name} in the judge's folder"
        self.inside = now

    def _memory(self) -> Iterator[str]:
        end = time.monotonic() + WAIT_S
        while (lost := self.memory - memory_kb(self.shared)) > MEMORY_KB and time.monotonic() < end:
            time.sleep(0.05)
        if lost > MEMORY_KB:
            yield f"memory: {lost >> 10} MB less are free"

    def _state(self) -> Iterator[str]:
        if (now := ipc()) != self.ipc:
            yield f"System V objects: {now}, were {self.ipc}"
        if (here := me()) != self.me:
            yield f"the judge's own state: {here}, was {self.me}"


class Files:
    """Names in folders. A folder whose time of change is as it was has no new name in it, so that a look costs little."""

    def __init__(self, roots: tuple[Path, ...], own: Path) -> None:
        self.own = str(own)
        self.known: dict[str, tuple[int, frozenset[str]]] = {}
        for root in roots:
            for _ in self._walk(str(root)):
                pass

    def fresh(self) -> list[str]:
        """Paths that were not there at the last look."""
        found: list[str] = []
        for folder, (when, had) in list(self.known.items()):
            changed = _changed(folder)
            if changed == when:
                continue
            if changed is None:
                del self.known[folder]
                continue
            now = self._look(folder, changed)
            for name in sorted(now - had):
                found += [os.path.join(folder, name), *self._walk(os.path.join(folder, name))]
        return found

    def _look(self, folder: str, changed: int) -> frozenset[str]:
        try:
            now = frozenset(os.listdir(folder)) - {*OUR_OWN}
        except OSError:  # gone, or not ours to read
            now = frozenset()
        self.known[folder] = (changed, now)
        return now

    def _walk(self, folder: str) -> Iterator[str]:
        """Everything below, folders remembered; nothing for what is no folder, or the judge's own."""
        todo = [folder]
        while todo:
            here = todo.pop()
            changed = None if here == self.own or os.path.islink(here) or not os.path.isdir(here) else _changed(here)
            if changed is None:
                continue
            below = [os.path.join(here, name) for name in self._look(here, changed)]
            yield from below
            todo += below


def _changed(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None


def _owner(path: str) -> int:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return -1


def names(folder: Path) -> frozenset[str]:
    """What lies in a folder, the builds apart."""
    return frozenset(str(p.relative_to(folder)) for p in folder.rglob("*") if "builds" not in p.parts and not {*OUR_OWN} & {*p.parts})


def processes() -> tuple[Process, ...]:
    found = (_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return tuple(p for p in found if p is not None)


def _process(pid: int) -> Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        uid = os.stat(f"/proc/{pid}").st_uid
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(pid, int(fields[19]), int(fields[1]), uid, fields[0] in (b"Z", b"X"), words)


def memory_kb(shared: bool) -> int:
    """Free memory. On a shared machine less what this process alone holds: memory elsewhere belongs to a process, a file in memory or a
    System V object, and those are looked for by name."""
    if shared:
        return -_fact_kb("/proc/self/status", "RssAnon") - _in_memfds_kb()
    return _fact_kb("/proc/meminfo", "MemAvailable")


def _fact_kb(path: str, name: str) -> int:
    with open(path) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _in_memfds_kb() -> int:
    """What the files in memory that this process has open take."""
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    held = (link.stat() for link in links if link.is_symlink() and os.readlink(link).startswith("/memfd:"))
    return sum({(s.st_dev, s.st_ino): s.st_blocks for s in held}.values()) // 2


def ipc() -> tuple[int, ...]:
    """How many System V objects there are of each kind."""
    return tuple(len(Path(f"/proc/sysvipc/{kind}").read_text().splitlines()) for kind in IPC)


def me() -> Self:
    status = Path("/proc/self/status").read_text().splitlines()
    handlers = " ".join(line.split()[1] for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt")))
    return Self(len(os.listdir("/proc/self/fd")), threading.active_count(), tuple(sorted(os.sched_getaffinity(0))), handlers)
