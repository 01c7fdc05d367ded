"""The judge's end of the channel: a runner as an object that maps, loads, calls and settles.

Owns the messages, the checks on every answer, and the order of things: the runner is stopped whenever none of these is
going on. A failure of the candidate is a `Failure`, ends the runner, and is the answer to everything asked afterwards.
Must not know tasks, contents, rounds or verdict rules.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from msgspec import Struct

from keepfast import native, wire
from keepfast.errors import MachineError
from keepfast.judge import endings
from keepfast.judge.endings import Buffer, Crash, Failure
from keepfast.judge.leash import Leash, State, Stir, Window
from keepfast.model import Reason
from keepfast.walls.base import Wall, Walled, Walls
from keepfast.wire import table

__all__ = ["Call", "Failure", "Runner", "RunnerSpec", "c_runner", "python_runner", "table"]

MAP, TABLE, LOAD, CALL, EXIT, LAYOUT = range(1, 7)
WRITABLE = 0x100
NAMES = {MAP: "map", TABLE: "table", LOAD: "load", CALL: "call", LAYOUT: "layout"}
START_S = 10.0
SMALL_S = 10.0  # for messages that only hand over memory
CORES_FACTOR, CORES_SLACK_NS = 1.1, 2_000_000
ERROR_BYTES = 65536  # of the runner's error output, kept for its last line


class RunnerSpec(Struct, frozen=True):
    """How to start a runner. `argv` is the program without the artifact, which comes last."""

    argv: tuple[str, ...]
    artifact: str
    threads: int = 1
    cores: tuple[int, ...] = ()
    memory_bytes: int = 2 << 30  # of address space: program, artifact and every mapped buffer
    read: tuple[str, ...] = ()
    scratch: str = ""
    scratch_bytes: int = 16 << 20
    cpu_seconds: int = 600
    env: tuple[tuple[str, str], ...] = ()


class Call(Struct, frozen=True):
    """A window that went well. `ns`: from before the runner was continued until its stop was confirmed. `cpu_ns`: CPU time in it."""

    ns: int
    cpu_ns: int


class Message(Struct, frozen=True):
    """One message to the runner; `b` carries the nonce in its high half where the op has one."""

    op: int
    a: int = 0
    b: int = 0
    fds: tuple[int, ...] = ()

    def pack(self) -> bytes:
        return struct.pack("<IIQ", self.op, self.a, self.b)

    @property
    def name(self) -> str:
        return NAMES[self.op & ~WRITABLE]

    @property
    def nonce(self) -> int:
        return self.b >> 32 if self.op in (LOAD, CALL) else 0


class Runner:
    """A runner process. Close it, or leave its `with` block, and nothing of it is left.

    The process dies with the thread that started it. Before `load` everything that goes wrong is a MachineError.
    """

    def __init__(self, walled: Walled, leash: Leash, spec: RunnerSpec, log: int, stack: ExitStack) -> None:
        self.spec = spec
        self._walled, self._leash, self._log, self._stack = walled, leash, log, stack
        self._buffers: tuple[Buffer, ...] = ()
        self._rows = 0
        self._loaded = False
        self._failure: Failure | None = None

    @classmethod
    def start(cls, walls: Walls, spec: RunnerSpec) -> Runner:
        """Start the program inside the walls and stop it as soon as it is ready."""
        with ExitStack() as stack:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            stack.enter_context(ours)
            log = wire.memfd("errors", ERROR_BYTES)
            stack.callback(os.close, log)
            with theirs:
                scratch = spec.scratch or stack.enter_context(_scratch(walls))
                walled = stack.enter_context(walls.spawn(_wall(spec, scratch, theirs.fileno()), (*spec.argv, spec.artifact), stderr=log))
            leash = Leash(walled.pid, ours)
            stack.callback(leash.close)
            runner = cls(walled, leash, spec, log, stack)
            runner._greet()
            runner._stack = stack.pop_all()
            return runner

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process and everything of it. May be called again."""
        self._stack.close()

    def map(self, fd: int, size: int, writable: bool, name: str = "") -> int:
        """Map shared memory of `size` bytes; the index that call tables use. The judge maps it first, and seals what is not writable.

        After `load` a failure is kept for the next call.
        """
        wire.check(fd, size, read_only=not writable)
        if writable:
            wire.seal_seals(fd)
        index = len(self._buffers)
        self._buffers += (Buffer(name or f"buffer {index}", size, writable),)
        self._ask(Message(MAP | WRITABLE if writable else MAP, index, size, (fd,)), SMALL_S)
        return index

    def table(self, fd: int, layout: wire.Layout = ()) -> None:
        """Use this call table (see `wire.table`) from now on. `layout` says what the words are; only a Python runner needs it."""
        if layout:
            described = wire.pack_layout(layout)
            with os.fdopen(described, "rb"):
                self._ask(Message(LAYOUT, 0, os.fstat(described).st_size, (described,)), SMALL_S)
        self._rows = struct.unpack("<I", os.pread(fd, 4, 8))[0]
        self._ask(Message(TABLE, 0, os.fstat(fd).st_size, (fd,)), SMALL_S)

    def load(self, timeout_s: float) -> Failure | None:
        """Load the artifact; hostile from here on."""
        self._loaded = True
        found = self._ask(Message(LOAD, 0, secrets.randbits(32) << 32), timeout_s)
        return found if isinstance(found, Failure) else None

    def call(self, first: int, count: int, timeout_s: float) -> Call | Failure:
        """Make the calls of rows `first` to `first + count - 1`, one after the other, and time them together."""
        if count < 1 or first < 0 or first + count > self._rows:
            raise ValueError(f"calls {first} to {first + count - 1} of {self._rows}")
        found = self._ask(Message(CALL, first, secrets.randbits(32) << 32 | count), timeout_s)
        if isinstance(found, Failure):
            return found
        allowed = self.spec.threads * found.ns * CORES_FACTOR + CORES_SLACK_NS + self._leash.cpu.step_ns
        if found.cpu_ns > allowed:
            return self._fail(endings.too_many_cores(found.cpu_ns, found.ns, self.spec.threads))
        return Call(found.ns, found.cpu_ns)

    def settle(self, seconds: float) -> Call | Failure:
        """Let it run with nothing to do, then stop it: whoever works on after a call is over does so now. CPU time used shows it."""
        if self._failure:
            return self._failure
        found = self._leash.pause(seconds)
        if isinstance(found, Stir):
            return self._fail(self._stirred(found))
        if failure := self._state(found, None):
            return self._fail(failure)
        return self.still() or Call(found.ns, found.cpu_ns)

    def still(self) -> Failure | None:
        """Whether it has kept still since it was last stopped. Checked before every call too; ask it after the last one."""
        if self._failure is None and (stir := self._leash.stirred()):
            return self._fail(self._stirred(stir))
        return self._failure

    # ---- answers ---------------------------------------------------------------------------------------------------------

    def _greet(self) -> None:
        window = self._leash.first_stop(START_S)
        reply = _frame(window.said)
        if window.state is not State.STOPPED or reply is None or reply.get("op") != "ready":
            raise self._ours(f"the runner did not start. {self._last_words()}".rstrip())

    def _ask(self, message: Message, timeout_s: float) -> Window | Failure:
        """One message, one window, one answer that fits."""
        if self._failure:
            return self._failure
        found = self._leash.window(message.pack(), timeout_s, message.fds)
        if isinstance(found, Stir):
            return self._fail(self._stirred(found))
        failure = self._heard(found, message, timeout_s)
        return self._fail(failure) if failure else found

    def _heard(self, window: Window, message: Message, timeout_s: float) -> Failure | None:
        """What is wrong with an answer."""
        reply = _frame(window.said)
        if failure := self._state(window, reply):
            return failure
        if window.said is None:
            return endings.silent(timeout_s, window.cpu_ns, message.name)
        if window.said == b"":
            return endings.broke_protocol(Stir.CLOSED.value)
        if reply is None:
            return endings.broke_protocol(f"sent {len(window.said)} bytes that are no answer")
        if reply.get("op") != message.name or reply.get("nonce") != message.nonce:
            return endings.broke_protocol("answered what was not asked", cheat=True)
        if self._leash.unread():
            return endings.broke_protocol("sent more than one answer", cheat=True)
        return None if reply.get("ok") is True and reply.get("rc") == 0 else self._refused(message, reply)

    def _state(self, window: Window, reply: dict[str, object] | None) -> Failure | None:
        """What is wrong with how a window ended."""
        crash = Crash.of(reply) if reply and reply.get("op") == "crash" else None
        if window.state is State.UNSTOPPABLE:
            return Failure(Reason.HANG, "could not be stopped", cheat=True)
        if window.state is State.SELF_STOPPED:
            return endings.broke_protocol("stopped itself")
        if window.state is State.ENDED:
            return endings.ended(self._status(), crash, self._buffers, self._last_words())
        return endings.ended(-crash.signal, crash, self._buffers, self._last_words()) if crash else None

    def _refused(self, message: Message, reply: dict[str, object]) -> Failure:
        rc, error = reply.get("rc"), reply.get("error")
        if isinstance(error, str):
            text = error.replace(self.spec.artifact, Path(self.spec.artifact).name)[: endings.MAX_DETAIL]
            return Failure(Reason.LOAD, text) if message.op == LOAD else endings.broke_protocol(f"{message.name}: {text}")
        if message.op == CALL and isinstance(rc, int):
            return Failure(Reason.RETURN_CODE, f"returned {rc}")
        return endings.broke_protocol("sent an answer that says nothing")

    def _stirred(self, stir: Stir) -> Failure:
        if stir is Stir.ENDED or (stir is Stir.CLOSED and self._walled.wait(0.05) is not None):
            return endings.ended(self._status(), None, self._buffers, self._last_words())
        return endings.broke_protocol(stir.value, cheat=stir in (Stir.WOKE, Stir.SPOKE))

    def _status(self) -> int:
        status = self._walled.wait(1.0)
        return 0 if status is None else status

    def _last_words(self) -> str:
        """The last line of its error output, which may be the candidate's own."""
        text = os.pread(self._log, ERROR_BYTES, 0).replace(b"\0", b"").decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1][:200] if lines else ""

    def _fail(self, failure: Failure) -> Failure:
        """End the process; the failure stays the answer."""
        self._leash.close()
        self._walled.kill()
        if not self._loaded:
            raise self._ours(f"the runner failed before a candidate was loaded: {failure.detail}")
        self._failure = failure
        return failure

    def _ours(self, what: str) -> MachineError:
        return MachineError(what, where=self.spec.argv[-1], next_step="keepfast doctor")


def _frame(said: bytes | None) -> dict[str, object] | None:
    try:
        return wire.unframe(said) if said else None
    except wire.WireError:
        return None


# ---- how runners are started -------------------------------------------------------------------------------------------


def c_runner(artifact: str, *, threads: int = 1, cores: tuple[int, ...] = (), memory_bytes: int = 2 << 30) -> RunnerSpec:
    """The runner for a shared object that exports `keepfast_call`."""
    return RunnerSpec((str(native.program("runner")),), artifact, threads, cores, memory_bytes)


def python_runner(baseline: str, *, threads: int = 1, cores: tuple[int, ...] = (), memory_bytes: int = 4 << 30) -> RunnerSpec:
    """The runner for a baseline in Python: this interpreter, with the folders that hold keepfast, msgspec and NumPy."""
    program = Path(wire.__file__).parent / "runner" / "python.py"
    # -s, -P: no packages of the user's, none beside the program. -B: nothing is written.
    argv = (sys.executable, "-s", "-P", "-B", str(program))
    folders = _package_folders("keepfast", "msgspec", "numpy")
    read = (sys.prefix, sys.base_prefix, *folders)
    return RunnerSpec(argv, baseline, threads, cores, memory_bytes, read, env=(("PYTHONPATH", os.pathsep.join(folders)),))


def _package_folders(*names: str) -> tuple[str, ...]:
    found = [spec.origin for name in names if (spec := importlib.util.find_spec(name)) and spec.origin]
    return tuple(dict.fromkeys(str(Path(origin).parent.parent) for origin in found))


def _wall(spec: RunnerSpec, scratch: str, channel: int) -> Wall:
    threads = str(spec.threads)
    limits = tuple((f"{name}_NUM_THREADS", threads) for name in ("OMP", "OPENBLAS", "MKL", "BLIS"))
    # The kernel counts a thread until it has left, a moment after whoever joins it goes on: as many again may be on their way out.
    # More than `threads` at work gain nothing: they share its cores, and CPU time is read for every window.
    tasks = spec.threads if spec.threads == 1 else 2 * spec.threads
    return Wall(
        "runner", scratch, (spec.artifact, *spec.read), spec.scratch_bytes, spec.memory_bytes, tasks, spec.cpu_seconds,
        spec.scratch_bytes, spec.cores, (*limits, *spec.env), (channel,),
    )  # fmt: skip


@contextmanager
def _scratch(walls: Walls) -> Iterator[str]:
    parent = walls.folder()
    folder = parent / "scratch"
    try:
        yield str(folder)
    finally:
        _remove(parent, folder)


def _remove(parent: Path, folder: Path) -> None:
    try:
        folder.rmdir()
        parent.rmdir()
    except OSError:
        # By rm, which does not recurse: how deep the folders are is up to the candidate where scratch is a real folder.
        subprocess.run(["rm", "-rf", "--", str(parent)], check=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
