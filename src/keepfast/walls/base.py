"""Starting a program inside the walls, and ending it with everything it started.

Owns the description of a wall, the handshake with `enter`, and the end of a walled process. Must not know compilers, candidates or
verdicts. How strong walls are on this machine is found out in `walls/detect.py`.

A walled process dies with the *thread* that started it: spawn from one that lives as long. Inside namespaces it is process 1, for
which the kernel ignores signals that it sends itself and does not handle: abort() ends there as SIGSEGV, not as SIGABRT.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal

from msgspec import Struct

from keepfast.errors import MachineError
from keepfast.model import Fact
from keepfast.walls import paths, sweep

Want = Literal["auto", "walls", "partial", "none"]
Strength = Literal["walls", "partial", "none"]
Mode = Literal["root", "user", "plain"]

MIB = 1 << 20
UIDS = range(60000, 65000)  # one of them for each walled process of root, so that its limit on processes counts nothing else
SPARE_TASKS = 64  # where the limit counts all of a user's processes: `enter` itself, and what else this user starts meanwhile
START_TIMEOUT_S = 20.0


class Wall(Struct, frozen=True):
    """What one walled process may do.

    profile      builder: may start programs of the read list; runner: never, and threads only when `processes` is above 1; device: as
                 builder, and CUDA runs: it may load what it makes in scratch, and `memory_bytes` does not bound it, because CUDA
                 reserves terabytes of addresses
    read         files and folders it may read (all but a runner also execute); the system's shared libraries are added
    scratch      the one folder it may write, its HOME, TMPDIR and working folder; in memory, with a quota, inside namespaces
    processes    processes and threads together; 1: none but itself
    env          added to the fixed environment
    keep_fds     descriptors it keeps; in this order they become 3, 4, ...
    devices      device nodes it may read, write and control, e.g. /dev/nvidia0; those that are absent here are absent inside
    """

    profile: Literal["builder", "runner", "device"]
    scratch: str
    read: tuple[str, ...] = ()
    scratch_bytes: int = 64 * MIB
    memory_bytes: int = 2048 * MIB
    processes: int = 1
    cpu_seconds: int = 60
    file_bytes: int = 64 * MIB
    cores: tuple[int, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    keep_fds: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()


class Walls(Struct, frozen=True):
    """The walls of this machine. `facts` say what holds and what to do about each lack."""

    strength: Strength
    mode: Mode
    landlock: int  # ABI, 0: not used
    seccomp: bool
    program: str  # path of `enter`
    facts: tuple[Fact, ...] = ()

    @classmethod
    def detect(cls, want: Want = "auto") -> Walls:
        """The strongest walls this machine has, or exactly those wanted. MachineError when `want` is more than it has."""
        from keepfast.walls import detect

        return detect.walls(want)

    def folder(self) -> Path:
        """A fresh folder that a walled process can reach when it is in its read list. The caller removes it."""
        made = Path(tempfile.mkdtemp(prefix="keepfast-"))
        made.chmod(0o711)
        return made

    def spawn(self, wall: Wall, argv: tuple[str, ...], *, stdout: int | None = None, stderr: int | None = None) -> Walled:
        """Starts argv[0] (an absolute path) and returns when it has begun. Output goes nowhere unless descriptors are given.

        MachineError when a step of entering fails: the walls are never thinner than asked for.
        """
        uid, gid = self._user()
        system = paths.of_cards() if wall.profile == "device" else ()
        opened = paths.opened((*paths.LOADER, *wall.read, *system, argv[0]))
        self._prepare(wall, paths.opened(wall.read).read, uid, gid)
        options = [*self._options(wall, uid, gid), *_path_options(opened)]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, life_end = socket.socketpair()
        with ours, theirs, life_end:
            options += ["--status", str(theirs.fileno()), "--life", str(life_end.fileno())]
            with ExitStack() as stack:
                stack.enter_context(life)
                entering = _start([self.program, *options, "--", *argv], wall, (theirs.fileno(), life_end.fileno()), (stdout, stderr))
                walled = stack.enter_context(Walled(self, entering, life, (uid, wall)))
                theirs.close()
                life_end.close()
                walled.greet(ours)
                stack.pop_all()
            return walled

    def _user(self) -> tuple[int, int]:
        if os.getuid() != 0 or self.mode == "user" or self.strength == "none":
            return os.getuid(), os.getgid()
        free = [*(sweep.mapped(UIDS) - sweep.users())]
        uid = secrets.choice(free) if free else os.getuid()
        return uid, uid if free else os.getgid()

    def _prepare(self, wall: Wall, read: tuple[str, ...], uid: int, gid: int) -> None:
        os.makedirs(wall.scratch, mode=0o700, exist_ok=True)
        for path in read:
            if (path + "/").startswith(_home(wall) + "/"):
                raise ValueError(f"{path} is inside the scratch folder {wall.scratch}")
        if self.mode != "plain" or uid == os.getuid():
            return
        os.chown(wall.scratch, uid, gid)
        for path in (*read, wall.scratch):
            if closed := paths.unreachable(path):
                raise MachineError(
                    f"{closed} is closed to other users, and without namespaces a walled process must pass it to reach {path}",
                    next_step=f"chmod o+x {closed}   or   run keepfast as an ordinary user",
                )

    def _shares_count(self, uid: int) -> bool:
        """The limit on processes counts all of this user's: without namespaces, and in user namespaces before Linux 5.14."""
        return uid == os.getuid() and (self.mode != "user" or _kernel() < (5, 14))

    def _options(self, wall: Wall, uid: int, gid: int) -> list[str]:
        others = sweep.tasks_of(uid) + SPARE_TASKS if self._shares_count(uid) else 0
        values = {
            "mode": self.mode, "profile": wall.profile, "landlock": self.landlock, "seccomp": int(self.seccomp), "uid": uid, "gid": gid,
            "scratch": _home(wall), "scratch-bytes": wall.scratch_bytes, "memory-bytes": wall.memory_bytes,
            "file-bytes": wall.file_bytes, "processes": wall.processes, "tasks": wall.processes + others, "cpu-seconds": wall.cpu_seconds,
        }  # fmt: skip
        options = [text for name, value in values.items() for text in (f"--{name}", str(value))]
        options += [text for core in wall.cores for text in ("--core", str(core))]
        options += [text for node in paths.nodes(wall.devices) for text in ("--device", node)]
        return options + [text for fd in wall.keep_fds for text in ("--keep", str(fd))]


class Walled:
    """A process inside the walls, a child of this one. Leave its `with` block, or call kill(), and nothing of it is left.

    pid         its process id as the judge sees it
    scratch_fd  its scratch folder (open it with dir_fd=): the only way there inside namespaces; valid until kill()
    """

    def __init__(self, walls: Walls, entering: subprocess.Popen[bytes], life: socket.socket, who: tuple[int, Wall]) -> None:
        self.pid, self.scratch_fd = -1, -1
        self._walls, self._entering, self._life = walls, entering, life
        self._uid, self._wall = who
        self._status: int | None = None
        self._reaped = False

    def __enter__(self) -> Walled:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def greet(self, status: socket.socket) -> None:
        """Learns its process id and scratch folder and lets it begin. MachineError: a step of entering failed."""
        status.settimeout(START_TIMEOUT_S)
        try:
            self.pid = int(_message(status)[0][4:])
            self.scratch_fd = _message(status)[1][0]
            if self._walls.mode != "plain":
                self._entering.wait()  # a process less that its limit would count
            status.send(b"g")
            if text := status.recv(1024):
                raise _refused(text)
        except OSError as error:
            raise MachineError(f"the walls did not answer: {error}", next_step="keepfast doctor") from error

    def wait(self, timeout_s: float) -> int | None:
        """Exit status (negative: the signal that ended it), or None when it still lives after `timeout_s`."""
        end, pause = time.monotonic() + timeout_s, 0.0005
        while (status := self._peek()) is None and time.monotonic() < end:
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
            pause = min(pause * 1.5, 0.01)
        return status

    def kill(self) -> int:
        """Ends it and every process it started; returns its exit status when none of them exists any more. May be called again."""
        if self.pid > 0 and not self._reaped:
            os.kill(self.pid, signal.SIGKILL)
            if self._walls.mode == "plain":
                sweep.group(self.pid, self._uid if self._uid != os.getuid() else None, _home(self._wall))
                self._life.close()
                self._entering.wait()  # before its number is given back: `enter` kills that group as its last act
            self._status = _status(os.waitid(os.P_PID, self.pid, os.WEXITED))
            self._reaped = True
        self._close()
        return -signal.SIGKILL if self._status is None else self._status

    def _peek(self) -> int | None:
        """Its status without reaping it: its process id stays its own until kill()."""
        if self._status is None:
            self._status = _status(os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        return self._status

    def _close(self) -> None:
        self._life.close()
        if self.scratch_fd >= 0:
            os.close(self.scratch_fd)
            self.scratch_fd = -1
        if self.pid < 0:
            self._entering.kill()
        self._entering.wait()


def _kernel() -> tuple[int, ...]:
    numbers = os.uname().release.split("-")[0].split(".")
    return tuple(int(n) for n in numbers[:2] if n.isdigit())


def _status(found: os.waitid_result | None) -> int | None:
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _path_options(opened: paths.Opened) -> list[str]:
    links = [text for path, target in opened.links for text in ("--link", path, target)]
    return [text for path in opened.read for text in ("--read", path)] + links


def _home(wall: Wall) -> str:
    return os.path.realpath(wall.scratch)


def _start(argv: list[str], wall: Wall, fds: tuple[int, ...], outputs: tuple[int | None, int | None]) -> subprocess.Popen[bytes]:
    home = _home(wall)
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home, **dict(wall.env)}
    stdout, stderr = (subprocess.DEVNULL if fd is None else fd for fd in outputs)
    return subprocess.Popen(
        argv,
        env=env,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        pass_fds=(*fds, *wall.keep_fds),
        start_new_session=True,
    )


def _message(status: socket.socket) -> tuple[bytes, list[int]]:
    text, fds, _, _ = socket.recv_fds(status, 1024, 1)
    if text.startswith((b"pid ", b"ready")):
        return text, fds
    raise _refused(text)


def _refused(text: bytes) -> MachineError:
    why = text.removeprefix(b"fail ").decode(errors="replace") or "it ended before it began"
    return MachineError(f"cannot enter the walls: {why}", next_step="keepfast doctor   shows what this machine offers")
