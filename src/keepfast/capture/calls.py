"""The calls of a case: one a set, made by an entry in Python or by the C ABI. Where each leaves its outputs.

Runs code of the candidate: whatever it raises passes through. Must not know streams, graphs or plans.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from keepfast.capture import prepare
from keepfast.capture.arena import Arena
from keepfast.capture.prepare import Prepare
from keepfast.capture.refusals import CAPTURING, Refused
from keepfast.capture.tensors import Bytes, Returned, argument, host
from keepfast.gpu.layout import Given, Layout, Tensor
from keepfast.gpu.plan import Segment

CAPTURE_CODES = range(900, 920)  # cudaErrorStreamCapture..., the same numbers in runtime and driver


class Work(Struct, frozen=True):
    """A case whose sets lie at `sets`."""

    layout: Layout
    calls: int
    sets: int
    sample: bytes = b""  # the image of a set that they hold

    def at(self, number: int) -> int:
        return self.sets + number * self.layout.set_bytes


class Calls(Protocol):
    prepares: bool
    """Whether `prepare` has to be called for a set before its call is made."""

    def prepare(self, number: int) -> None:
        """Pack the weights of set `number`, and keep what came of it. Runs code of the candidate."""

    def launch(self, number: int) -> tuple[Any, int]:
        """Make the call on set `number`: what it returned, and how long its host code took in ns. Runs code of the candidate."""

    def settle(self, number: int, value: Any, phase: str) -> tuple[Segment, ...]:
        """Check what the call returned, keep it alive, and say where its outputs lie."""

    def drop(self) -> None:
        """Forget what was kept."""


class PythonCalls:
    """`function(*arguments in schema order)` returns its outputs, or None when it only writes into arguments. What `ready` returns for
    a call stands in the place of what it took."""

    def __init__(self, function: Callable[..., object], work: Work, memory: Bytes, arena: Arena, ready: Prepare | None = None) -> None:
        self.function, self.work, self.ready = function, work, ready
        self.prepares = ready is not None and ready.mode == prepare.WEIGHTS
        self._packed: dict[int, object] = {}
        self._kept: list[object] = []
        known = {g.name: host(work.sample, g.tensor) for g in work.layout.given if _is_meta(g) and g.tensor is not None}
        self._arguments = [
            [known[g.name] if g.name in known else _value(g, memory, work.at(i)) for g in work.layout.given] for i in range(work.calls)
        ]
        sets = (work.sets, work.at(work.calls))
        self.returned = Returned(work.layout, memory(work.sets, 1).device, arena.holds, sets)

    def launch(self, number: int) -> tuple[Any, int]:
        given: Sequence[object] = self._arguments[number]
        began = time.perf_counter_ns()
        if self.ready is not None:
            given = self.ready.instead(given, self._packed[number] if self.prepares else self.ready(given))
        value = self.function(*given)
        return value, time.perf_counter_ns() - began

    def prepare(self, number: int) -> None:
        if self.ready is not None and self.prepares:
            self._packed[number] = prepare.packed(self.ready(self._arguments[number]), self.returned.foreign)

    def settle(self, number: int, value: Any, phase: str) -> tuple[Segment, ...]:
        self._kept.append(value)
        given = zip(self.work.layout.given, self._arguments[number], strict=True)
        return self.returned.outputs(value, [v for g, v in given if g.tensor is not None and g.tensor.written])

    def drop(self) -> None:
        self._kept.clear()
        self._packed.clear()


class CCalls:
    """`keepfast_call(words)`: arguments in schema order, outputs, axes, stream, as task/abi.py unpacks them. No `prepare`."""

    prepares = False

    def __init__(self, function: Callable[[Any], int], work: Work, arena: Arena, stream: int) -> None:
        self.function, self.work, self.arena, self.stream = function, work, arena, stream
        self._kept: list[int] = []
        self._alive: list[object] = []  # what words point at
        self._fixed = {g.name: self._scalar(g) for g in work.layout.given if g.tensor is None}
        self._fixed |= {g.name: self._meta(g.tensor) for g in work.layout.given if _is_meta(g) and g.tensor is not None}

    def prepare(self, number: int) -> None:
        return

    def launch(self, number: int) -> tuple[Any, int]:
        outputs = tuple(Segment(self.arena.alloc(max(o.nbytes, 1)), o.nbytes) for o in self.work.layout.outputs)
        self._kept += [o.address for o in outputs]
        words = self._words(number, outputs)
        began = time.perf_counter_ns()
        code = self.function(words)
        return (code, outputs), time.perf_counter_ns() - began

    def settle(self, number: int, value: Any, phase: str) -> tuple[Segment, ...]:
        code, outputs = value
        if code in CAPTURE_CODES and phase == CAPTURING:
            raise Refused("graph", f"it returned {code}: CUDA refused something while the stream was being captured")
        if code:
            raise Refused("raised", f"it returned {code} instead of 0")
        return tuple(outputs)

    def drop(self) -> None:
        for address in self._kept:
            self.arena.free(address)
        self._kept.clear()

    def _words(self, number: int, outputs: tuple[Segment, ...]) -> ctypes.Array[ctypes.c_uint64]:
        layout, at = self.work.layout, self.work.at(number)
        given = (self._fixed[g.name] if g.name in self._fixed or g.tensor is None else at + g.tensor.start for g in layout.given)
        words = (*given, *(o.address for o in outputs), *(n & 2**64 - 1 for _, n in layout.axes), self.stream)
        return (ctypes.c_uint64 * len(words))(*words)

    def _meta(self, tensor: Tensor) -> int:
        """A pointer to memory of the host."""
        image = self.work.sample.ljust(tensor.offset + tensor.nbytes, b"\0")
        return self._pointer(image[tensor.offset : tensor.offset + tensor.nbytes] or b"\0") + tensor.start - tensor.offset

    def _scalar(self, given: Given) -> int:
        """The word of an argument that is no tensor: NULL for None, a pointer for text and for optional ones."""
        value = given.value
        if value is None:
            return 0
        if given.kind == "str":
            return self._pointer(str(value).encode() + b"\0")
        data = struct.pack("<d" if given.kind == "float" else "<Q", value if given.kind == "float" else int(value) & 2**64 - 1)
        return self._pointer(data) if given.optional else int.from_bytes(data, "little")

    def _pointer(self, data: bytes) -> int:
        buffer = ctypes.create_string_buffer(data, len(data))
        self._alive.append(buffer)
        return ctypes.addressof(buffer)


def _is_meta(given: Given) -> bool:
    """Whether it is a tensor that the host may read: the same for all calls of a capture."""
    return given.tensor is not None and given.tensor.role == "meta"


def _value(given: Given, memory: Bytes, at: int) -> object:
    return argument(memory, at, given.tensor) if given.tensor is not None else given.value
