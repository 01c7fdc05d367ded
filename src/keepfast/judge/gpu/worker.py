"""One capture worker as the judge holds it: started inside the walls, spoken to twice, killed.

Owns its wall and environment, what its silence and its end mean, and the last lines of its error output. Must not know plans.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socketpair
from types import TracebackType
from typing import TypeVar

import msgspec
from msgspec import Struct

from keepfast import native, wire
from keepfast.errors import MachineError
from keepfast.gpu import messages, plan
from keepfast.judge import endings, toolchain
from keepfast.judge.endings import Failure, broke_protocol
from keepfast.judge.gpu import peer
from keepfast.judge.gpu.peer import LOG_BYTES, SETTLE_S, Argv
from keepfast.judge.leash import CpuClock
from keepfast.walls.base import Wall, Walls

FD = 3  # what the first descriptor that a wall keeps becomes
# By it Triton finds the driver's library; a script on some systems.
LINKER = tuple(f"{folder}/ldconfig{end}" for folder in ("/sbin", "/usr/sbin") for end in ("", ".real"))
EXIT_S = 5.0  # from the end of its channel to its exit: an interpreter with torch takes its time
T = TypeVar("T")


class WorkerSpec(Struct, frozen=True):
    """How capture workers are started, and how many are kept warm.

    devices    device nodes of the card, opened read-write
    card       its UUID, the only one a worker sees, as number 0
    libraries  modules it imports before it hears of a candidate
    read       more files and folders that it may read: editable installs, compilers in odd places
    env        more variables; they win
    """

    arena_library: str
    max_bytes: int  # of device memory
    arena_bytes: int = 1 << 38  # of addresses
    devices: tuple[str, ...] = ()
    card: str = ""
    libraries: tuple[str, ...] = ("torch", "triton")
    size: int = 2
    read: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cores: tuple[int, ...] = ()
    threads: int = 4
    processes: int = 512
    memory_bytes: int = 64 << 30
    scratch_bytes: int = 4 << 30
    cpu_seconds: int = 1800


class Worker:
    """One process. It starts at once and gets ready by itself; leave its `with` block and nothing of it is left."""

    def __init__(self, walls: Walls, spec: WorkerSpec, arena: int, argv: Argv) -> None:
        self.arena = arena
        self._words = b""
        with ExitStack() as stack:
            self.channel, theirs = socketpair(AF_UNIX, SOCK_STREAM)
            self._log, log = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, self._log)
            stack.enter_context(self.channel)
            with theirs, os.fdopen(log, "wb"):
                scratch = stack.enter_context(_scratch(walls))
                self._walled = stack.enter_context(walls.spawn(_wall(spec, scratch, theirs.fileno()), (*argv(FD),), stderr=log))
            os.set_blocking(self._log, False)
            with suppress(wire.WireError):  # it has ended: `ready` says how
                messages.send(self.channel, _warm(spec, arena))
            self._stack = stack.pop_all()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """May be called again."""
        self._stack.close()

    def kill(self) -> None:
        """Nothing of it runs any more. What it said can still be read."""
        self._walled.kill()

    def heard(self, timeout_s: float) -> bool:
        """Whether it has said something, or ended, within this time. Its error output is read meanwhile, so that it is never held up."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        poll.register(self._log, select.POLLIN)
        end = time.monotonic() + timeout_s
        while True:
            ready = {fd for fd, _ in poll.poll(max(0.0, end - time.monotonic()) * 1000)}
            if self._log in ready and not self._drain():
                poll.unregister(self._log)
            if self.channel.fileno() in ready:
                return True
            if time.monotonic() >= end:
                return False

    def ready(self, timeout_s: float) -> messages.Ready:
        """Its first words. MachineError when there are none: it has not heard of a candidate yet."""
        if not self.heard(timeout_s):
            raise self._ours(f"was not ready after {timeout_s:.0f} s")
        try:
            said, fds = wire.receive(self.channel, timeout_s=SETTLE_S)
            _close(fds)
            return msgspec.convert(said, messages.Ready)
        except wire.Closed:
            status = self._walled.wait(EXIT_S)
            raise self._ours("closed its channel" if status is None else peer.ended(status).removeprefix("it ")) from None
        except (wire.WireError, msgspec.ValidationError) as error:
            raise self._ours(f"said something else than that it is ready: {error}") from None

    def tell(self, record: Struct, fds: Sequence[int]) -> None:
        try:
            messages.send(self.channel, record, fds)
        except wire.WireError as error:
            raise self._ours(f"takes no candidate: {error}") from None

    def answer(self, kind: type[T], timeout_s: float) -> T | Failure:
        """What it says to the candidate. All that is wrong with it is the candidate's doing."""
        end = time.monotonic() + timeout_s
        try:
            if not self.heard(timeout_s):
                return self._silent(timeout_s)
            said, fds = wire.receive(self.channel, timeout_s=max(0.001, end - time.monotonic()))
        except wire.TimedOut:
            return self._silent(timeout_s)
        except wire.Closed:
            return self._ended()
        except wire.WireError as error:
            return broke_protocol(f"sent what is no answer: {error}", cheat=True)
        if fds:
            _close(fds)
            return broke_protocol("sent descriptors with its answer", cheat=True)
        try:
            return msgspec.convert(said, kind)
        except msgspec.ValidationError as error:
            return broke_protocol(f"sent what is no answer: {error}", cheat=True)

    def talked(self) -> Failure | None:
        """Whether more was said than one answer. Asked when it is dead: then nothing can be on its way."""
        self.channel.setblocking(False)
        try:
            more = self.channel.recv(1)
        except (BlockingIOError, ConnectionResetError):
            return None
        return broke_protocol("sent more than one answer", cheat=True) if more else None

    # ---- how it ended --------------------------------------------------------------------------------------------------

    def _silent(self, timeout_s: float) -> Failure:
        return endings.silent(timeout_s, CpuClock(self._walled.pid).read(), "capture")

    def _ended(self) -> Failure:
        status = self._walled.wait(EXIT_S)
        if status is None:
            return broke_protocol("closed the judge's channel and went on")
        return endings.ended(status, None, (), self.last_words())

    def last_words(self) -> str:
        """The last line of its error output."""
        self._drain()
        return peer.last_line(self._words)

    def _drain(self) -> bool:
        """Read what there is of its error output and keep the end of it. False when there will be no more."""
        for _ in range(16):  # of a pipe's 64 KiB: one that is always full does not keep the judge here
            try:
                piece = os.read(self._log, 65536)
            except BlockingIOError:
                return True
            if not piece:
                return False
            self._words = (self._words + piece)[-LOG_BYTES:]
        return True

    def _ours(self, what: str) -> MachineError:
        words = self.last_words()
        said = f"; its last words: {words}" if words else ""
        return MachineError(f"a capture worker {what}{said}", next_step="keepfast doctor")


def _warm(spec: WorkerSpec, arena: int) -> messages.Warm:
    return messages.Warm(
        arena=arena,
        arena_bytes=spec.arena_bytes,
        arena_library=spec.arena_library,
        device=0,
        libraries=spec.libraries,
        max_bytes=spec.max_bytes,
    )


def _wall(spec: WorkerSpec, scratch: str, channel: int) -> Wall:
    return Wall(
        profile="device",
        scratch=scratch,
        read=(*_readable(), spec.arena_library, *spec.read),
        scratch_bytes=spec.scratch_bytes,
        memory_bytes=spec.memory_bytes,
        processes=spec.processes,
        cpu_seconds=spec.cpu_seconds,
        file_bytes=max(spec.scratch_bytes, plan.MAX_BYTES),
        cores=spec.cores,
        env=tuple((_environment(spec, scratch) | dict(spec.env)).items()),
        keep_fds=(channel,),
        devices=spec.devices,
    )


def _readable() -> tuple[str, ...]:
    """This interpreter and its packages; the compiler and linker that Triton and Inductor start."""
    return (*toolchain.python_folders(), *LINKER)


def _environment(spec: WorkerSpec, scratch: str) -> dict[str, str]:
    home, threads = os.path.realpath(scratch), str(spec.threads)
    return {
        **dict(toolchain.python_environment()),
        "CC": str(native.compiler()),
        "PYTHONHASHSEED": "0",  # two captures of one candidate have to launch the same
        "TRITON_CACHE_DIR": f"{home}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "CUDA_MODULE_LOADING": "LAZY",
        **{f"{name}_NUM_THREADS": threads for name in ("OMP", "OPENBLAS", "MKL")},
        **peer.visible(spec.card),
    }


@contextmanager
def _scratch(walls: Walls) -> Iterator[str]:
    parent = walls.folder()
    try:
        yield str(parent / "scratch")
    finally:
        _remove(parent)


def _remove(parent: Path) -> None:
    """Inside namespaces the scratch folder is empty as seen from here."""
    try:
        with suppress(FileNotFoundError):
            (parent / "scratch").rmdir()
        parent.rmdir()
    except OSError:
        # By rm, which does not recurse: how deep the folders are is up to the candidate where scratch is a real folder.
        subprocess.run(["rm", "-rf", "--", str(parent)], check=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
