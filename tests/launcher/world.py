"""Cases, plans and banks for tests, and a server on a card: one made of host memory (fake.py), or a real one."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from msgspec.structs import replace

from keepfast import wire
from keepfast.gpu.driver import BLOCK, RESERVE, Device
from keepfast.gpu.layout import Given, Layout, Output, Tensor, contiguous, up
from keepfast.gpu.messages import Bank, Close, Open, Opened, Tolerance
from keepfast.gpu.plan import VERSION, Block, Kernel, Node, Plan, Segment, Work, encode
from keepfast.launcher.bench import Bench
from keepfast.launcher.kernels import Kernels
from keepfast.launcher.serve import Server

ARENA_BYTES = 8 * RESERVE
BASES = itertools.count(1 << 42, 64 * ARENA_BYTES)  # above all that tests of the arena draw
ROWS, COLUMNS = 4, 64
N = ROWS * COLUMNS
FACTOR = 3.0
KEEPING = ("scale_for_", "scale_by_", "scale_generation", "scale_ping", "scale_workspace")  # kernels with words that live on
ONE_THREAD = (*KEEPING, "leaf_", "scale_ahead", "scale_in_pairs")


def tensor(shape: Sequence[int], at: int, *, itemsize: int = 4, **more: Any) -> Tensor:
    shape = tuple(shape)
    return Tensor(more.pop("dtype", "float32"), shape, contiguous(shape), at, at, int(np.prod(shape)) * itemsize, **more)


def layout(*, written: bool = False, scratch: bool = False) -> Layout:
    """x (4, 64), y of the same shape, then perhaps scratch; out like x."""
    given = [Given("x", "tensor", tensor((ROWS, COLUMNS), 0, written=written)), Given("y", "tensor", tensor((ROWS, COLUMNS), 1536))]
    if scratch:
        given.append(Given("work", "tensor", tensor((100,), 3072, role="scratch")))
    outputs = () if written else (Output("out", "float32", (ROWS, COLUMNS), 4 * N),)
    return Layout("small", (("m", ROWS),), tuple(given), outputs, 4096)


def pointer(address: int) -> bytes:
    return struct.pack("<Q", address)


class Case:
    """Makes plans of one layout. Arenas do not overlap, nor with those of another case."""

    def __init__(self, image: bytes, made: Layout | None = None, calls: int = 5) -> None:
        self.image, self.layout, self.calls, self.base = image, made or layout(), calls, next(BASES)

    def arena(self) -> int:
        self.base += 2 * ARENA_BYTES
        return self.base

    def plan(self, kernel: str = "scale", *, calls: int = 0, skip: int = 1, blocks: tuple[Block, ...] = ()) -> tuple[int, Plan]:
        """(arena, plan): in each call the kernel, or several with a + between them. Results begin `skip` pages after the sets, the first
        page of the arena lives on."""
        calls, arena = calls or self.calls, self.arena()
        size = up(self.layout.set_bytes * calls, BLOCK)
        out = arena + BLOCK + size + skip * BLOCK
        results = [self._results(out, call) for call in range(calls)]
        at, names = (arena + BLOCK, out, arena), kernel.split("+")
        nodes = tuple(
            Node(call, self.work(name, at, call), (len(names) * call + i - 1,) if i else ())
            for call in range(calls)
            for i, name in enumerate(names)
        )
        own = (Segment(arena + BLOCK, size),) if size else ()
        segments = (Segment(arena, 8192), *own, Segment(out, up(calls * 1024 + 1024)))
        saved = tuple(Block(arena + b.address, b.data) for b in blocks)
        return arena, Plan(VERSION, "small", calls, arena + BLOCK, (self.image,), nodes, segments, tuple(results), saved)

    def _results(self, out: int, call: int) -> tuple[Segment, ...]:
        return tuple(Segment(out + 1024 * call, o.nbytes) for o in self.layout.outputs)

    def work(self, kernel: str, at: tuple[int, int, int], call: int) -> Work:
        """`at`: sets, results, start of the arena."""
        sets, out, arena = at
        x, y, to = sets + call * self.layout.set_bytes, sets + call * self.layout.set_bytes + 1536, out + 1024 * call
        scaled = [(0, pointer(to)), (8, pointer(x)), (16, pointer(N)), (24, struct.pack("<f", FACTOR))]
        known: dict[str, list[tuple[int, bytes]]] = {
            "add_to": [(0, pointer(x)), (8, pointer(y)), (16, pointer(N))],
            "noop": [],
            "scale_once": [*scaled, (32, pointer(arena + 1024))],
            "scale_all": [
                (0, pointer(out)),
                (8, pointer(sets)),
                *scaled[2:],
                (32, pointer(self.calls)),
                (40, pointer(self.layout.set_bytes)),
                (48, pointer(1024)),
            ],
        }
        state = (32, pointer(arena + 1024))
        batch = struct.pack("<QQQQQfI", out, sets, N, 1024, self.layout.set_bytes, FACTOR, self.calls)
        known |= {
            "leaf_first": [(0, state[1]), (8, pointer(100_000))],
            "leaf_watched": [(0, state[1]), (8, pointer(100_000)), (16, pointer(22_000))],
            "scale_ahead": [(0, batch), (48, struct.pack("<I", call)), (56, state[1])],
            "scale_in_pairs": [(0, batch), (48, struct.pack("<I", call)), (56, state[1])],
        }
        parameters = known.get(kernel, [*scaled, state] if kernel.startswith(KEEPING) else scaled)
        return Kernel(0, kernel, (1, 1, 1), (1 if kernel.startswith(ONE_THREAD) else 32, 1, 1), 0, tuple(parameters))


def images(made: Layout, draws: int, seed: int = 3) -> np.ndarray:
    """Contents of a bank: floats of about 1 in every draw."""
    values = np.random.default_rng(seed).standard_normal((draws, made.set_bytes // 4)).astype(np.float32)
    return values.view(np.uint8).reshape(draws, made.set_bytes)


def memfd(data: bytes, size: int = 0) -> int:
    fd = wire.memfd("test", size or len(data))
    os.pwrite(fd, data, 0)
    return fd


class World:
    """A server with a card; opens cases and remembers what a judge would. `images`: our kernels, and those of plans."""

    def __init__(self, cu: Any, images: tuple[bytes, bytes]) -> None:
        self.cu, self.plan_image = cu, images[1]
        self.device = Device(0, cu)
        self.server = Server(self.device, Kernels(self.device, images[0]), 0.0)
        self.audit_fd = -1
        self.bank = np.zeros((0, 0), np.uint8)

    def case(self, made: Layout | None = None, **more: Any) -> Case:
        return Case(self.plan_image, made, **more)

    def order(self, case: Case, plans: Sequence[tuple[int, Plan]], **more: Any) -> tuple[Open, list[int]]:
        """Open for these plans, with its descriptors. `kind`: of bank and audit memory; `rms`: of the tolerance."""
        self.close()
        draws, kind, rms = more.pop("draws", 4), more.pop("kind", "host"), more.pop("rms", 0.0)
        self.bank = images(case.layout, draws)
        data = self.bank.tobytes() or bytes(16)
        size = up(len(data), BLOCK) if kind == "gpu" else len(data)
        encoded = [encode(plan) for _, plan in plans]
        fds = [memfd(data, size), *(memfd(e) for e in encoded)]
        if kind == "host":
            self.audit_fd = memfd(b"", up(4 * case.layout.set_bytes + 8192, BLOCK))
            fds.append(self.audit_fd)
        order = Open(
            layout=case.layout,
            arena_bytes=ARENA_BYTES,
            arenas=tuple(arena for arena, _ in plans),
            plan_bytes=tuple(len(e) for e in encoded),
            bank=Bank(kind, draws, case.layout.set_bytes, size),
            tolerances=tuple(Tolerance("float32", COLUMNS, rms, 10 * rms) for _ in case.layout.results),
            seed=more.pop("seed", 7),
            audit=kind,
        )
        return order, fds

    def open(self, case: Case, plans: Sequence[tuple[int, Plan]], **more: Any) -> Opened:
        order, fds = self.order(case, plans, **more)
        answer = self.server.answer(order, fds)
        with ExitStack() as stack:
            for fd in fds:
                if fd != self.audit_fd:
                    stack.callback(os.close, fd)
        if answer.fds:
            (self.audit_fd,) = answer.fds
        assert isinstance(answer.record, Opened)
        return answer.record

    def close(self) -> None:
        self.server.answer(Close())
        if self.audit_fd >= 0:
            os.close(self.audit_fd)
            self.audit_fd = -1

    def ask(self, order: Any) -> Any:
        return self.server.answer(order).record

    def audited(self, size: int) -> np.ndarray:
        return np.frombuffer(os.pread(self.audit_fd, size, 0), np.uint8)


def opened(world: World, *kernels: str, **more: Any) -> Case:
    """A case with an arm for each kernel, the second with its results elsewhere."""
    case = world.case(more.pop("made", None), calls=more.pop("calls", 5))
    blocks = more.pop("blocks", ())
    answer = world.open(case, [case.plan(kernel, skip=1 + 4 * i, blocks=blocks) for i, kernel in enumerate(kernels)], **more)
    assert answer.fault is None, answer.fault
    return case


def bench(world: World) -> Bench:
    assert world.server.bench is not None
    return world.server.bench


def peeking_at(case: Case, where: Callable[[Plan, int], int]) -> list[tuple[int, Plan]]:
    """An honest arm, and one whose calls copy what lies at `where`, which is told the honest plan and the call."""
    honest, (arena, made) = case.plan("scale"), case.plan("peek", skip=9)
    nodes = []
    for node in made.nodes:
        assert isinstance(node.work, Kernel)
        parameters = (*node.work.parameters[:3], (24, pointer(where(honest[1], node.call))))
        nodes.append(replace(node, work=replace(node.work, parameters=parameters)))
    return [honest, (arena, replace(made, nodes=tuple(nodes)))]
