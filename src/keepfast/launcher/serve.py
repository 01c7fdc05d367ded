"""The launcher's process: `python -m keepfast.launcher.serve FD [DEVICE [FOLDER]]`. Orders come in on a socket, each gets one answer.

FOLDER, when given, keeps our compiled kernels from process to process; whoever can write it is trusted. Must not know what is
judged. After a kernel faulted the context is lost: that is answered, and the process ends.
"""

from __future__ import annotations

import hashlib
import os
import select
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random, SystemRandom
from socket import socket
from typing import Any

from msgspec import Struct

from keepfast import wire
from keepfast.gpu import messages
from keepfast.gpu.driver import CudaError, Device, driver
from keepfast.gpu.messages import (
    Audit,
    Audited,
    Bench,
    Benched,
    Close,
    Fault,
    Open,
    Opened,
    Profile,
    Profiled,
    Ran,
    Run,
    Solo,
    Soloed,
    Time,
    Timed,
    Wind,
    Wound,
)
from keepfast.launcher import faults
from keepfast.launcher import kernels as ours
from keepfast.launcher.bench import Bench as OpenCase
from keepfast.launcher.case import Case
from keepfast.launcher.faults import Failed, asked
from keepfast.launcher.kernels import Kernels
from keepfast.launcher.rates import Rates

PATIENCE_S = 24 * 3600.0  # the judge closes the channel when it has no more orders
ORDER: Any = messages.Order

FAILURES: dict[type[Struct], Callable[[Fault], Struct]] = {
    Open: lambda fault: Opened((), 0, 0, 0.0, fault),
    Run: lambda fault: Ran(0.0, fault=fault),
    Audit: Audited,
    Time: lambda fault: Timed(fault=fault),
    Solo: lambda fault: Soloed(fault=fault),
    Profile: lambda fault: Profiled(fault=fault),
    Wind: lambda fault: Wound(fault=fault),
    Bench: lambda fault: Benched(fault=fault),
}


class Answer(Struct):
    """`record` None: nothing goes back. `fds` are closed when they are sent."""

    record: Struct | None
    fds: tuple[int, ...] = ()
    end: bool = False


class Server:
    """The card and at most one open case. `began`: when the first case started to be got ready."""

    def __init__(self, device: Device, kernels: Kernels, began: float) -> None:
        self.device, self.kernels, self.began = device, kernels, began
        self.bench: OpenCase | None = None

    def answer(self, order: Struct, fds: Sequence[int] = ()) -> Answer:
        try:
            return self._answer(order, fds)
        except Failed as failed:
            return _unanswered(order, failed.fault, failed.fault.kind == "fault")
        except CudaError as error:
            running = -1 if self.bench is None else self.bench.running
            return _unanswered(order, faults.of(error, running), faults.lost(error))
        except wire.WireError as error:
            return _unanswered(order, Fault("machine", str(error)), False)

    def _answer(self, order: Struct, fds: Sequence[int]) -> Answer:
        if isinstance(order, Open):
            return self._open(order, fds)
        if isinstance(order, Bench):
            return Answer(Benched(Rates(self.device, self.kernels, Random(SystemRandom().getrandbits(64))).measure()))
        if isinstance(order, Close):
            self._close()
            return Answer(None)
        if self.bench is None:
            raise Failed("machine", f"{type(order).__name__} without an open case")
        return Answer(_done(self.bench, order))

    def _open(self, order: Open, fds: Sequence[int]) -> Answer:
        asked(self.bench is None, "a case is open: Close comes before the next Open")
        began, self.began = self.began or time.monotonic(), 0.0
        rng = Random(order.seed)
        with ExitStack() as stack:
            case = Case(self.device, self.kernels, order, fds, rng)
            stack.callback(case.close)
            bench = OpenCase(case, rng)
            facts = tuple(arm.rebuilt.facts() for arm in case.arms)
            handed = (case.audit.export(),) if order.audit == "gpu" else ()
            stack.pop_all()
        self.bench = bench
        return Answer(Opened(facts, case.audit.size, self.device.l2_bytes, time.monotonic() - began), handed)

    def _close(self) -> None:
        bench, self.bench = self.bench, None
        if bench is not None:
            bench.case.close()


def _unanswered(order: Struct, fault: Fault, end: bool) -> Answer:
    """A fault as the answer to this kind of order. Where none is awaited nothing can be said, and the process ends."""
    made = FAILURES.get(type(order))
    return Answer(made(fault), end=end) if made else Answer(None, end=True)


def _done(bench: OpenCase, order: Struct) -> Struct:
    if isinstance(order, Run):
        return bench.run(order)
    if isinstance(order, Audit):
        bench.audit(order)
        return Audited()
    if isinstance(order, Time):
        return bench.time(order)
    if isinstance(order, Solo):
        return bench.solo(order)
    if isinstance(order, Profile):
        return bench.profile(order)
    if isinstance(order, Wind):
        return bench.wind(order)
    raise TypeError(f"no order: {type(order).__name__}")


class Unfit:
    """Stands where the card would: what kept it from being made ready is the answer to every order."""

    def __init__(self, why: str) -> None:
        self.why = why

    def answer(self, order: Struct, fds: Sequence[int] = ()) -> Answer:
        del fds
        return Answer(None) if isinstance(order, Close) else _unanswered(order, Fault("machine", self.why), False)


# --------------------------------------------------------------------------------------------- the process


def serve(channel: socket, server: Server | Unfit) -> None:
    """Answer orders until the channel closes or nothing more can be done."""
    try:
        while _one(channel, server):
            pass
    except wire.Closed:
        return


def _one(channel: socket, server: Server | Unfit) -> bool:
    """Answer one order. False: it was the last."""
    order, fds = messages.receive(channel, ORDER, timeout_s=PATIENCE_S)
    with ExitStack() as stack:
        for fd in fds:
            stack.callback(os.close, fd)
        answer = server.answer(order, fds)
        for fd in answer.fds:
            stack.callback(os.close, fd)
        if answer.record is not None:
            messages.send(channel, answer.record, answer.fds)
    return not answer.end


def ready(index: int, folder: Path | None) -> Server | Unfit:
    """The card with our kernels on it."""
    began = time.monotonic()
    try:
        device = Device(index)
        return Server(device, Kernels(device, image(device.arch, folder)), began)
    except (CudaError, ImportError, RuntimeError, OSError) as error:  # the bindings' own loader raises RuntimeError
        return Unfit(f"the card cannot be used: {error}")


def image(arch: tuple[int, ...], folder: Path | None) -> bytes:
    """Our kernels for this architecture, from the folder when they are there."""
    text = ours.source()
    if folder is None:
        return ours.compiled(text, arch)
    kept = folder / f"contents-sm{arch[0]}{arch[1]}-{hashlib.sha256(text).hexdigest()[:24]}.cubin"
    if kept.is_file():
        return kept.read_bytes()
    made = ours.compiled(text, arch)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(made)
    os.replace(file.name, kept)
    return made


def main(argv: Sequence[str]) -> int:
    with socket(fileno=int(argv[1])) as channel:
        with suppress(ImportError, RuntimeError):  # `ready` says so
            driver()  # imported now; the card is touched with the first order, when nothing else is timed on it
        select.select([channel], [], [])
        serve(channel, ready(int(argv[2]) if len(argv) > 2 else 0, Path(argv[3]) if len(argv) > 3 else None))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
