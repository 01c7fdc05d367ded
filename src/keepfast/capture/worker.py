"""`python -m keepfast.capture.worker FD`: gets ready before it hears of a candidate, captures one, says what came of it, and ends.

Untrusted, walled, killed afterwards. Answers are plain frames; plans go into memfds that the judge made.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from socket import socket
from subprocess import SubprocessError
from typing import Any

import msgspec
from msgspec import Struct

from keepfast import wire
from keepfast.capture import cuda, load, prepare, tensors
from keepfast.capture.arena import Arena
from keepfast.capture.autotune import Autotuned
from keepfast.capture.calls import Calls, CCalls, PythonCalls, Work
from keepfast.capture.case import Case, Gpu
from keepfast.capture.cupti import Images, Subscription
from keepfast.capture.handover import Seen
from keepfast.capture.refusals import LOADING, Guard, Refused, clean, of_stack
from keepfast.gpu import messages, plan
from keepfast.gpu.driver import CudaError
from keepfast.gpu.messages import Capture, Captured, CapturedCase, CaseWork, Ready, Warm

WAIT_S = 7 * 24 * 3600.0  # for a candidate: the judge closes the channel when there is none
FILES = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], ...])
ROOM = wire.MAX_BYTES - 1024
C_LANGUAGES = ("cuda",)


class Side(Struct):
    """What a candidate is captured with, all of it made before there is one."""

    gpu: Gpu
    arena: Arena
    images: Images
    memory: tensors.Bytes | None  # None without torch
    driver: str = ""  # version
    compiled: Seen | None = None  # what Triton made; None: it is not looked at


class NotReady(Exception):
    """Why this worker cannot capture anything; "arena" when another base is needed."""


class Inbox:
    """The descriptors of a Capture, in the order of messages.Capture."""

    def __init__(self, request: Capture, fds: Sequence[int]) -> None:
        cases = request.cases
        wanted = 1 + request.library + len(cases) + sum(1 for c in cases if c.sample)
        if len(fds) != wanted:
            raise wire.WireError(f"{len(fds)} descriptors came with a capture, not {wanted}")
        rest = iter(fds)
        self.files = FILES.decode(_bytes(next(rest), request.files_bytes))
        self.library = _bytes(fd := next(rest), os.fstat(fd).st_size) if request.library else b""
        self.plans = [next(rest) for _ in cases]
        self.samples = [_bytes(next(rest), c.sample) if c.sample else b"" for c in cases]


class Worker:
    """Captures one candidate below `home`."""

    def __init__(self, side: Side, request: Capture, inbox: Inbox, home: Path) -> None:
        self.side, self.request, self.inbox = side, request, inbox
        self.tree = (home / "tree").resolve()
        self.binary = home / "binary"
        self.autotuned = Autotuned(self.tree)
        side.images.where = self.where

    def run(self) -> Captured:
        done: list[CapturedCase] = []
        case = ""
        try:
            entry = self._load()
            for work, fd, sample in zip(self.request.cases, self.inbox.plans, self.inbox.samples, strict=True):
                case = work.layout.case
                done.append(self._case(entry, work, fd, sample))
        except Refused as error:
            return self._answer(done, error, case)
        return self._answer(done, None, "")

    def where(self) -> str:
        """The line of the candidate that is running."""
        return of_stack(sys._getframe(), self.tree)

    def guard(self, phase: str) -> AbstractContextManager[None]:
        return Guard(self.tree, phase, self.side.arena.short)

    def _load(self) -> Callable[..., Any]:
        request = self.request
        load.write(self.tree, self.inbox.files)
        library = self._library()
        with self.guard(LOADING):
            if request.language in C_LANGUAGES:
                return load.shared(library)
            load.search(self.tree, request.entry_path, request.path)
            if request.library:
                load.extension(library)
            return load.python(self.tree, request.entry_path, request.entry_symbol)

    def _library(self) -> Path:
        """The shared object, where it can be loaded from."""
        path = self.binary / "keepfast_extension.so"
        if self.request.library:
            self.binary.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.inbox.library)
        return path

    def _case(self, entry: Callable[..., Any], work: CaseWork, fd: int, sample: bytes) -> CapturedCase:
        pins = dict(work.pins)
        self.autotuned.restrict(pins)
        _forget_compiled()
        case = Case(self.side.gpu, self.side.arena, self.guard, sample, lambda: self.autotuned.restrict(pins))
        placed = case.place(work.layout, work.calls)
        made = case.run(placed, self._calls(entry, placed))
        case.release(placed)
        data, ir = plan.encode(made.plan), self.side.compiled.of(made.plan) if self.side.compiled else b""
        ir = ir if len(data) + len(ir) <= os.fstat(fd).st_size else b""
        return CapturedCase(work.layout.case, _put(fd, data + ir) - len(ir), round(made.host_us, 3), len(ir))

    def _calls(self, entry: Callable[..., Any], placed: Work) -> Calls:
        side, request = self.side, self.request
        if request.language in C_LANGUAGES:
            return CCalls(entry, placed, side.arena, side.gpu.stream)
        if side.memory is None:
            raise Refused("import", "torch was not loaded in this worker")
        ready = prepare.bound(load.beside(self.tree, request.entry_path, prepare.SYMBOL), placed.layout, request.prepare)
        with side.gpu.on_stream():
            return PythonCalls(entry, placed, side.memory, side.arena, ready)

    def _answer(self, done: Sequence[CapturedCase], error: Refused | None, case: str) -> Captured:
        """What fits into a frame: descriptions of autotuned kernels are left out from the end."""
        known = self.autotuned.described()
        said = (error.error, error.detail) if error is not None else ("", "")
        while True:
            answer = Captured(*said, case, tuple(done), known, _versions(self.side.driver))
            if not known or len(wire.encode(msgspec.to_builtins(answer))) < ROOM:
                return answer
            known = known[:-1]


def warm(order: Warm) -> Side:
    """Everything that needs no candidate: callbacks, imports, allocator, context, arena. NotReady says why not."""
    images = Images()
    with _said("CUPTI"):
        watch = Subscription(images)
    for name in order.libraries:
        with _said(name):
            importlib.import_module(name)
    with _said("the arena's library"):
        arena = Arena(order.arena_library)
    with _said("the GPU"):
        cuda.take_allocator(order.arena_library)
        gpu = cuda.Cuda(order.device, images, watch)
        if why := arena.open(order.arena, order.arena_bytes, order.max_bytes):
            raise NotReady(why)
        gpu.touch()
        _warm_triton()
        memory = tensors.on_device(order.device) if "torch" in sys.modules else None
        return Side(gpu, arena, images, memory, gpu.version(), Seen())


@contextlib.contextmanager
def _said(what: str) -> Iterator[None]:
    """What goes wrong inside makes this worker NotReady, in a sentence."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, SubprocessError, CudaError) as error:
        raise NotReady(f"{what}: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}") from None


def _warm_triton() -> None:
    """Triton compiles a helper of its own when its driver is first asked for, and is slow with its first kernel."""
    runtime = sys.modules.get("triton.runtime")
    if runtime is not None:
        runtime.driver.active.get_current_device()
        with contextlib.suppress(Exception):  # of any kind: then a candidate's kernel is the first, and says what is wrong
            importlib.import_module("keepfast.capture.first").compiled()


def _forget_compiled() -> None:
    """What torch.compile learnt from earlier cases: with other shapes before it, a case would be compiled for shapes that vary."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()


def _versions(driver: str) -> tuple[tuple[str, str], ...]:
    found = [(n, str(getattr(sys.modules[n], "__version__", "?"))) for n in ("torch", "triton", "cutlass") if n in sys.modules]
    return (*found, ("cuda driver", driver))


def _bytes(fd: int, size: int) -> bytes:
    """Contents of a memfd, which is closed."""
    try:
        if not size:
            return b""
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as memory:
            return memory[:]
    finally:
        os.close(fd)


def _put(fd: int, data: bytes) -> int:
    """Write a plan, and what comes with it, from offset 0; the size. Refused when the memfd is too small."""
    room = os.fstat(fd).st_size
    if len(data) > room:
        raise Refused("not-a-plan", f"a plan of {len(data) >> 20} MiB; it may have {room >> 20} MiB")
    with mmap.mmap(fd, room) as memory:
        memory[: len(data)] = data
    os.close(fd)
    return len(data)


def _say(channel: socket, answer: Ready | Captured) -> None:
    wire.send(channel, msgspec.to_builtins(answer))


def serve(channel: socket, home: Path, make: Callable[[Warm], Side] = warm) -> None:
    """The two exchanges of a worker's life."""
    began = time.monotonic()
    order, _ = messages.receive(channel, Warm, timeout_s=60.0)
    try:
        side = make(order)
    except NotReady as error:
        return _say(channel, Ready(False, clean(str(error))))
    gc.collect()
    gc.freeze()  # torch has a million objects, and a collection, of which every case takes two, looks at each: 60 ms
    _say(channel, Ready(True, "", round(time.monotonic() - began, 3)))
    request, fds = messages.receive(channel, Capture, timeout_s=WAIT_S)
    return _say(channel, Worker(side, request, Inbox(request, fds), home).run())


def main(arguments: Sequence[str]) -> None:
    with contextlib.suppress(wire.Closed):  # the judge needed no capture
        serve(socket(fileno=int(arguments[0])), Path.home())
    os._exit(0)  # nothing of a candidate's runs now, neither exit handlers nor destructors after a fault


if __name__ == "__main__":
    main(sys.argv[1:])
