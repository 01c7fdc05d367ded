"""One call's buffers: where each tensor lies, what the call's words are, and what was drawn.

Owns the layout of a *set* (the memory of one call): an input region that the subject may only read, and an output region
with canaries around every tensor. Used by the reference worker, which fills images, and by the judge, which copies them.
Must not know processes, clocks or verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from keepfast.errors import TaskError
from keepfast.model import Arg, Case, Signature

if TYPE_CHECKING:
    import numpy as np

ALIGN = 64
GAP = 256  # canary bytes before, between and after output tensors


class Slot(Struct, frozen=True):
    """A tensor in a region: `base` and `span` are the bytes it may occupy, `start` is its first element."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    region: str  # in | out
    base: int
    start: int
    span: int

    @property
    def contiguous(self) -> bool:
        expected = []
        step = self.span // max(1, math.prod(self.shape))
        for size in reversed(self.shape):
            expected.append(step)
            step *= size
        return self.span == 0 or tuple(reversed(expected)) == self.strides


class Word(Struct, frozen=True):
    """One 64-bit word of a call: a raw value, an offset into a region, or NULL."""

    kind: str  # raw | in | out | null
    value: int = 0


class Layout(Struct, frozen=True):
    slots: tuple[Slot, ...]
    in_bytes: int
    out_bytes: int

    def slot(self, name: str) -> Slot:
        return next(s for s in self.slots if s.name == name)

    def outs(self) -> tuple[Slot, ...]:
        return tuple(s for s in self.slots if s.region == "out")


class Draw(Struct, frozen=True):
    """One drawn set: images of both regions and, when asked for, the expected results (contiguous, in `Signature.results` order)."""

    case: Case
    layout: Layout
    words: tuple[Word, ...]
    in_image: Any  # np.ndarray[uint8], (in_bytes,)
    out_image: Any  # np.ndarray[uint8], (out_bytes,): first contents of written arguments
    working: tuple[Any, ...] = ()  # results at working precision
    exact: tuple[Any, ...] = ()  # results in float64 (integers as they are)
    limit: tuple[float, float] = (0.0, 0.0)  # bytes and flops of the task's own limit(case, inputs)


def view(image: np.ndarray, slot: Slot, at: int = 0) -> np.ndarray:
    """The tensor `slot` inside a region's bytes that begin at `at`."""
    import numpy as np

    from keepfast.dtypes import by_name

    return np.ndarray(slot.shape, by_name(slot.dtype).numpy, image.data, at + slot.start, slot.strides)


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


class _Region:
    """Hands out aligned byte ranges; `gap` bytes stay free around each."""

    def __init__(self, name: str, gap: int) -> None:
        self.name, self.gap, self.end = name, gap, gap

    def take(self, span: int) -> int:
        base = _up(self.end, ALIGN)
        self.end = base + span + self.gap
        return base

    def slot(self, name: str, array: np.ndarray) -> Slot:
        low, span = _extent(array)
        base = self.take(span)
        return Slot(name, _dtype(name, array), array.shape, array.strides, self.name, base, base + low, span)

    @property
    def size(self) -> int:
        return max(_up(self.end, GAP), GAP)


def _extent(array: np.ndarray) -> tuple[int, int]:
    """(bytes from the lowest address to element 0, bytes from lowest to highest)."""
    if array.size == 0:
        return 0, 0
    reach = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low = -sum(r for r in reach if r < 0)
    return low, low + sum(r for r in reach if r > 0) + array.itemsize


def _dtype(name: str, array: np.ndarray) -> str:
    from keepfast.dtypes import of_numpy

    found = of_numpy(array.dtype)
    if found is None:
        raise TaskError(
            f"`{name}` has dtype {array.dtype}, which keepfast cannot hold", where="reference.py", next_step="see docs/tasks.md, dtypes"
        )
    return str(found.name)


def plan(sig: Signature, case: Case, values: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> tuple[Layout, tuple[Word, ...]]:
    """Lay out one set and its call words: arguments in schema order, outputs, axes, stream.

    Arguments keep their strides. Fresh outputs are contiguous, whatever view a reference returned (`x.T`, a broadcast).
    """
    import numpy as np

    regions = {"in": _Region("in", 0), "out": _Region("out", GAP)}
    slots: list[Slot] = []
    words = [_argument(arg, values[arg.name], regions, slots) for arg in sig.args]
    for name, array in outputs.items():
        slots.append(regions["out"].slot(name, np.asarray(array, order="C")))
        words.append(Word("out", slots[-1].start))
    words += [Word("raw", value) for _, value in case.axes]
    words.append(Word("null"))
    return Layout(tuple(slots), regions["in"].size, regions["out"].size), tuple(words)


def _argument(arg: Arg, value: Any, regions: Mapping[str, _Region], slots: list[Slot]) -> Word:
    import numpy as np

    if value is None:
        return Word("null")
    if arg.kind == "tensor":
        region = "out" if arg.written else "in"
        slots.append(regions[region].slot(arg.name, value))
        return Word(region, slots[-1].start)
    if arg.kind == "str" or arg.optional:
        data = np.frombuffer(scalar_bytes(arg, value), np.uint8)
        slots.append(regions["in"].slot(arg.name, data))
        return Word("in", slots[-1].start)
    return Word("raw", int.from_bytes(scalar_bytes(arg, value), "little", signed=False))


def scalar_bytes(arg: Arg, value: Any) -> bytes:
    """A scalar as the C ABI holds it: int64, double, 0 or 1, or a NUL-terminated string."""
    import struct

    if arg.kind == "str":
        return str(value).encode() + b"\0"
    return struct.pack("<d", value) if arg.kind == "float" else struct.pack("<q", int(value))


def images(sig: Signature, layout: Layout, values: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of both regions: arguments in place, everything else zero."""
    import numpy as np

    regions = {"in": np.zeros(layout.in_bytes, np.uint8), "out": np.zeros(layout.out_bytes, np.uint8)}
    for arg in sig.args:
        value = values[arg.name]
        slot = next((s for s in layout.slots if s.name == arg.name), None)
        if slot is None or value is None:
            continue
        array = value if arg.kind == "tensor" else np.frombuffer(scalar_bytes(arg, value), np.uint8)
        view(regions[slot.region], slot)[...] = array
    return regions["in"], regions["out"]
