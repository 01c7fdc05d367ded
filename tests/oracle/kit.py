"""Tiny GPU tasks on the CPU: reference.py with torch, and the oracle as a process or in this one."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket, socketpair
from typing import Any

import torch

from keepfast import wire
from keepfast.gpu import layout as places
from keepfast.gpu import messages
from keepfast.gpu.layout import Layout
from keepfast.gpu.messages import Answer, Ask, Describe, Described, Fill, Filled
from keepfast.model import Case, Task
from keepfast.oracle import draws
from keepfast.oracle.reference import Results, Values
from keepfast.oracle.serve import serve
from keepfast.task.signature import parse
from tests.judge.tasks import softmax_task

HEAD = "import torch\n\n\n"
RMSNORM = """
def inputs(case, rng):
    draw = lambda *shape: torch.randn(*shape, generator=rng, device=rng.device, dtype=torch.float32).to(torch.bfloat16)
    return {"x": draw(case.m, case.n), "residual": draw(case.m, case.n), "weight": draw(case.n), "eps": 1e-6}


def reference(x, residual, weight, eps):
    total = x + residual
    scale = torch.rsqrt(total.to(torch.promote_types(x.dtype, torch.float32)).square().mean(-1, keepdim=True) + eps)
    return (total * scale).to(x.dtype) * weight, total
"""
RMSNORM_SIGNATURE = "add_rms_norm(Tensor(a!) x, Tensor(b!) residual, Tensor weight, float eps=1e-6) -> ()"
SOFTMAX = """
def inputs(case, rng):
    return {"x": 2 * torch.randn(case.m, case.n, generator=rng, device=rng.device)}


def reference(x):
    return torch.softmax(x, -1)
"""
SQUARE = """
def inputs(case, rng):
    return {"x": torch.randn(case.m, case.n, generator=rng, device=rng.device)}


def reference(x):
    return x * x + 1
"""
SMALL = (Case("main", (("m", 8), ("n", 32))), Case("odd", (("m", 3), ("n", 7)), use="correct"))


def task(folder: Path, reference: str, signature: str = "f(Tensor x) -> Tensor", **changes: Any) -> Task:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reference.py").write_text(HEAD + reference)
    return softmax_task(str(folder), **{"signature": parse(signature), "cases": SMALL, "languages": ("triton",), **changes})


class Judge:
    """The judge's end of the channel."""

    def __init__(self, made: Task, channel: socket) -> None:
        self.task, self.channel = made, channel
        messages.send(channel, made)

    def asked(self, question: Any, kind: type[Any], fds: Sequence[int] = ()) -> tuple[Any, list[int]]:
        messages.send(self.channel, question, fds)
        return messages.receive(self.channel, kind, timeout_s=60.0)

    def describe(self) -> Described:
        return self.asked(Describe(), Described)[0]  # type: ignore[no-any-return]

    def layout(self, case: str) -> Layout:
        return next(x for x in self.describe().layouts if x.case == case)

    def fill(self, case: str, *seeds: tuple[int, ...]) -> tuple[Filled, torch.Tensor]:
        """The answer, and the draws as (draws, stride) bytes."""
        filled, fds = self.asked(Fill(case, seeds, "host"), Filled)
        if filled.bank is None:
            return filled, torch.empty(0)
        bank = filled.bank
        with mmap.mmap(fds[0], bank.size) as memory:
            data = bytearray(memory[:])
        os.close(fds[0])
        return filled, torch.frombuffer(data, dtype=torch.uint8)[: bank.draws * bank.stride].reshape(bank.draws, bank.stride)

    def ask(self, layout: Layout, image: torch.Tensor, results: Results) -> Answer:
        """Is this answer to the contents of an image right?"""
        audit = places.audit(layout)
        fd = wire.memfd("audit", audit.size)
        with mmap.mmap(fd, audit.size) as memory:
            whole = torch.frombuffer(memory, dtype=torch.uint8)
            whole[: layout.set_bytes] = image[: layout.set_bytes]
            for name, place in draws.results(whole, layout, audit).items():
                place.copy_(results[name])
            del whole, place
        try:
            return self.asked(Ask(layout.case, "host", audit.size), Answer, [fd])[0]  # type: ignore[no-any-return]
        finally:
            os.close(fd)


@contextmanager
def served(made: Task, where: str = "cpu", ends: int = 0) -> Iterator[Judge]:
    """The oracle as a process of its own, as the judge starts it; `ends` with this code when the channel is closed."""
    ours, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    with ours, theirs:
        process = subprocess.Popen([sys.executable, "-m", "keepfast.oracle", str(theirs.fileno()), where], pass_fds=[theirs.fileno()])
        theirs.close()
        try:
            yield Judge(made, ours)
            ours.close()
            assert process.wait(20) == ends
        finally:
            process.kill()
            process.wait()


@contextmanager
def here(made: Task) -> Iterator[Judge]:
    """The same in a thread of this process, which saves the import of torch."""
    ours, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    path, modules = list(sys.path), sys.modules.pop("keepfast_reference", None)
    thread = threading.Thread(target=_serve, args=(theirs,), daemon=True)
    thread.start()
    try:
        yield Judge(made, ours)
    finally:
        ours.close()
        thread.join(20)
        theirs.close()
        sys.path[:] = path
        sys.modules.pop("keepfast_reference", None)
        if modules is not None:
            sys.modules["keepfast_reference"] = modules
    assert not thread.is_alive()


def _serve(channel: socket) -> None:
    with suppress(wire.Closed):
        serve(channel, "cpu")


def values_in(image: torch.Tensor, layout: Layout) -> Values:
    """The arguments of a draw, apart from its memory."""
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in draws.read(image, layout).items()}
