"""A process of ours that the judge asks one question at a time: how it starts, what its silence means, how it ends.

For the trusted ones, launcher and oracle; a capture worker has walls and is spoken to otherwise. Also what all three share: folders to
read packages from, and bytes in sealed memory. Must not know what is asked.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket, socketpair
from typing import TypeVar

from msgspec import Struct

from keepfast import settings, wire
from keepfast.errors import MachineError
from keepfast.gpu import messages
from keepfast.judge import toolchain

Argv = Callable[[int], Sequence[str]]  # command line for a channel's descriptor
T = TypeVar("T")

LOG_BYTES = 4096  # of its error output, for the last line
END_S = 60.0  # a GPU gives a killed process back within seconds; longer is a fault of the machine
SETTLE_S = 1.0  # from the end of its channel to its exit
# What a process needs to find programs, the driver, the card and the cache of compiled helpers.
KEPT = ("PATH", "LANG", "HOME", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME")


class Silence(Exception):
    """No answer, and the process is dead. `status`: how it ended by itself, None when it did not. The text is a sentence."""

    def __init__(self, status: int | None, why: str, *, timed_out: bool) -> None:
        self.status, self.timed_out = status, timed_out
        super().__init__(why)


class Peer:
    """One process on the other end of a socket pair. Close it, and it is gone."""

    def __init__(self, argv: Argv, env: Mapping[str, str], *, quiet: bool) -> None:
        """`quiet`: its error output is kept for the sentence about its end; else it goes where the judge's goes."""
        self._log = os.memfd_create("errors", os.MFD_CLOEXEC) if quiet else -1
        self.channel, theirs = socketpair(AF_UNIX, SOCK_STREAM)
        with theirs:
            self.process = _started([*argv(theirs.fileno())], theirs, self._log if quiet else 2, env)

    def tell(self, record: Struct, fds: Sequence[int] = ()) -> None:
        """Silence when it takes nothing."""
        try:
            messages.send(self.channel, record, fds)
        except wire.WireError as error:
            raise self._silence(error) from None

    def ask(self, record: Struct, kind: type[T], timeout_s: float, fds: Sequence[int] = ()) -> tuple[T, list[int]]:
        """The answer and its descriptors, which the caller closes. Silence, and the process is dead, when none comes in time."""
        self.tell(record, fds)
        try:
            return messages.receive(self.channel, kind, timeout_s=timeout_s)
        except wire.WireError as error:
            raise self._silence(error) from None

    def close(self) -> None:
        """Kill it and wait until the kernel has taken it down: only then is the memory it held on the card free again."""
        self.channel.close()
        self.process.kill()
        self._gone()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _silence(self, error: wire.WireError) -> Silence:
        status = None if isinstance(error, wire.TimedOut) else self._ended()
        words = self._last_words()
        self.close()
        why = str(error) if status is None else ended(status)
        text = f"{why}; its last words: {words}" if words else why
        return Silence(status, text, timed_out=isinstance(error, wire.TimedOut))

    def _ended(self) -> int | None:
        try:
            return self.process.wait(SETTLE_S)
        except subprocess.TimeoutExpired:
            return None

    def _gone(self) -> None:
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            what = f"process {self.process.pid} cannot be ended: the driver holds on to it"
            raise MachineError(what, next_step="nvidia-smi and dmesg say whether the card has failed") from None

    def _last_words(self) -> str:
        if self._log < 0:
            return ""
        size = os.fstat(self._log).st_size
        return last_line(os.pread(self._log, LOG_BYTES, max(0, size - LOG_BYTES)))


def _started(argv: list[str], channel: socket, log: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        pass_fds=[channel.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=log,  # what is printed there is no result of ours
        stderr=log,
        env=dict(env),
        start_new_session=True,  # an interrupt at the terminal is the judge's to answer
    )


def ended(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"it exited (code {status})"
    known = {int(s): s.name for s in signal.Signals}
    return f"it was ended by {known.get(-status, f'signal {-status}')}"


def last_line(text: bytes) -> str:
    lines = [line.strip() for line in text.replace(b"\0", b"").decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


# --------------------------------------------------------------------------------------------- what all three share


def command(module: str, *more: str) -> Argv:
    """The command line of one of our modules: FD, then `more`. -s, -P: no packages of the user's, none of the working folder's."""
    return lambda fd: toolchain.python_module(module, str(fd), *more)


def lean_environment(card: str, packages: Sequence[str]) -> dict[str, str]:
    """For a process that needs little: the few variables of KEPT, our packages, and one visible card when its UUID is given."""
    ours = settings.reference_environment(1)
    return {k: ours[k] for k in KEPT if k in ours} | visible(card) | {"PYTHONPATH": os.pathsep.join(folders(*packages))}


def visible(card: str) -> dict[str, str]:
    """The variable that makes a card, by UUID, the only one and number 0."""
    return {"CUDA_VISIBLE_DEVICES": card} if card else {}


def folders(*packages: str) -> tuple[str, ...]:
    """The folders from which these packages are imported; of those that are not installed none."""
    found = [Path(place).parent for name in packages for place in _places(name)]
    return tuple(dict.fromkeys(str(folder) for folder in found))


def _places(name: str) -> list[str]:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ()) or ([spec.origin] if spec.origin else [])


def sealed(name: str, data: bytes) -> int:
    """A descriptor of memory that holds `data` and that nobody can change. At least one byte long."""
    fd = wire.memfd(name, max(len(data), 1))
    at, view = 0, memoryview(data)
    while at < len(data):
        at += os.pwrite(fd, view[at:], at)
    wire.seal_writes(fd)
    return fd
