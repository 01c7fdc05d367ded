"""A GPU for tests of the capture: the arena's bookkeeping over host memory, and a stream whose kernels are Python functions."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import random
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import keepfast
from keepfast.capture.arena import Arena
from keepfast.capture.refusals import Refused
from keepfast.gpu import layout as layouts
from keepfast.gpu.driver import CudaError
from keepfast.gpu.layout import Given, Layout, Output, Tensor
from keepfast.gpu.plan import Kernel, Node

MIB = 1 << 20
BASES = itertools.count(0x100_0000_0000, 0x4000_0000)  # 1 GiB each, below all that other tests draw: none is ever given back in a process
IMAGE = b"\x7fELF .text.add\0 .text.scale\0"
SOURCE = Path(keepfast.__file__).parent / "capture" / "arena.c"


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """arena.c over host memory."""
    out = tmp_path_factory.mktemp("arena") / "arena.so"
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc")
    subprocess.run(
        [gcc, "-DARENA_FAKE", "-O2", "-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o", str(out), "-pthread"],
        check=True,
    )
    return out


@pytest.fixture
def fresh(fake_library: Path, tmp_path: Path) -> Arena:
    """An arena that is not open yet. A copy of the library has state of its own."""
    return Arena(shutil.copy(fake_library, tmp_path / f"arena-{random.getrandbits(32):x}.so"))


@pytest.fixture
def arena(fresh: Arena) -> Arena:
    opened(fresh)
    return fresh


def opened(arena: Arena, size: int = 1024 * MIB, max_bytes: int = 512 * MIB) -> None:
    assert arena.open(next(BASES), size, max_bytes) == ""


class FakeGpu:
    """Host memory stands for the card's. `kernel(...)` is a launch: it works at once, or becomes a node while capturing."""

    stream = 0x5EED

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.capturing = False
        self.nodes: list[tuple[int, str, tuple[int, ...]]] = []
        self.pending: list[tuple[str, tuple[int, ...]]] = []
        self.astray = ""
        self.cut = ""  # why the capture has ended
        self.fault = ""
        self.always = ""  # a kernel that every call launches, for entries that cannot say so themselves
        self.eager = 0

    def kernel(self, name: str, *parameters: int, work: Callable[[], object] | None = None) -> None:
        if self.capturing:
            self.pending.append((name, parameters))
            return
        self.eager += 1
        if work is not None:
            work()

    def write(self, address: int, data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    def copy(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def clear(self, address: int, size: int) -> None:
        ctypes.memset(address, 0, size)

    def read(self, address: int, size: int) -> bytes:
        return ctypes.string_at(address, size)

    def synchronise(self) -> None:
        if self.fault:
            raise CudaError(self.fault)

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        yield

    def begin(self) -> None:
        self.capturing, self.nodes = True, []

    def broken(self) -> bool:
        return bool(self.cut)

    def note(self, call: int) -> int:
        if self.astray:
            raise Refused("graph", f"{self.astray}: work on another stream is not joined")
        if self.cut:
            raise Refused("graph", self.cut)
        new, self.pending = self.pending + ([(self.always, ())] if self.always else []), []
        self.nodes += [(call, name, parameters) for name, parameters in new]
        return len(new)

    def end(self) -> tuple[tuple[Node, ...], tuple[bytes, ...]]:
        self.capturing = False
        made = tuple(Node(call, kernel(name, parameters), ()) for call, name, parameters in self.nodes)
        return made, (IMAGE,) if made else ()

    # what candidates use

    def tensor(self, address: int, size: int) -> Any:
        import torch

        return torch.frombuffer(_buffer(address, size), dtype=torch.uint8)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """As torch.empty on a device: a block of the arena, given back when nothing refers to it."""
        import torch

        size = dtype.itemsize
        for n in shape:
            size *= n
        address = self.arena._lib.arena_alloc(max(size, 1), 0, None)
        if not address:  # torch does not notice either
            return torch.empty(shape, dtype=dtype)
        buffer = _buffer(int(address), max(size, 1))
        weakref.finalize(buffer, self.arena.free, int(address))
        return torch.frombuffer(buffer, dtype=torch.uint8)[:size].view(dtype).view(shape)


def _buffer(address: int, size: int) -> Any:
    return (ctypes.c_uint8 * size).from_address(address)


def kernel(name: str, parameters: tuple[int, ...]) -> Kernel:
    words = tuple((8 * i, p.to_bytes(8, "little")) for i, p in enumerate(parameters))
    return Kernel(0, name, (1, 1, 1), (32, 1, 1), 0, words)


@pytest.fixture
def gpu(arena: Arena) -> Iterator[FakeGpu]:
    """The device, which candidates import as `card`."""
    made = FakeGpu(arena)
    card = ModuleType("card")
    card.empty, card.kernel, card.gpu = made.empty, made.kernel, made  # type: ignore[attr-defined]
    sys.modules["card"] = card
    before = list(sys.path)
    yield made
    sys.path[:] = before
    for name in [
        n
        for n, m in sys.modules.items()
        if n == "card" or n.startswith("keepfast_candidate") or "candidate" in str(getattr(m, "__file__", ""))
    ]:
        del sys.modules[name]


def laid(
    given: tuple[tuple[str, str, tuple[int, ...], bool] | Given, ...], outputs: tuple[tuple[str, str, tuple[int, ...]], ...]
) -> Layout:
    """A layout of contiguous tensors (name, dtype, shape, written), other arguments as they are, and outputs."""
    at, made = 0, []
    for one in given:
        if isinstance(one, Given):
            made.append(one)
            continue
        name, dtype, shape, written = one
        size = _bytes(dtype, shape)
        place = Tensor(dtype, shape, layouts.contiguous(shape), at, at, size, written)
        made.append(Given(name, "tensor", place))
        at += layouts.up(max(size, 1))
    results = tuple(Output(n, d, s, _bytes(d, s)) for n, d, s in outputs)
    return Layout("c1", (("n", 8), ("m", 4)), tuple(made), results, max(at, layouts.ALIGN))


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    bits = {"float32": 32, "bfloat16": 16, "float16": 16, "float8_e4m3fn": 8, "float4_e2m1": 8, "int64": 64, "int32": 32}[dtype]
    size = bits // 8
    for n in shape:
        size *= n
    return size
