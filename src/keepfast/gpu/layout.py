"""The memory of one call on a GPU: where each argument of a set lies, and what the outputs must look like. Data only.

Sets of one case follow each other, `set_bytes` apart. Fresh outputs are not in a set: the candidate allocates them, or, in the C
ABI, the capture does; a plan says where each lies.
"""

from __future__ import annotations

import math

from msgspec import Struct

ALIGN = 512  # of every tensor in a set, and of a set; what torch's own allocator gives


class Tensor(Struct, frozen=True):
    """A tensor argument inside a set. Strides count elements; `offset` and `nbytes` bound its bytes, `start` is its element 0."""

    dtype: str  # a name of keepfast.dtypes
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    start: int
    nbytes: int
    written: bool = False  # marked `!`: restored before and compared after each launch
    role: str = "input"  # input | weight | scratch | index | meta
    refresh: str = "element"  # element: mixes two draws; whole: one draw as it is


class Given(Struct, frozen=True):
    """One argument in schema order: a tensor, or a scalar or None in `value`."""

    name: str
    kind: str  # tensor | int | float | bool | str
    tensor: Tensor | None = None
    value: int | float | bool | str | None = None
    optional: bool = False  # a `?` in the signature: in the C ABI a scalar goes by pointer


class Output(Struct, frozen=True):
    """A fresh output: contiguous, of this type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class Layout(Struct, frozen=True):
    case: str
    axes: tuple[tuple[str, int], ...]
    given: tuple[Given, ...]
    outputs: tuple[Output, ...]
    set_bytes: int

    @property
    def tensors(self) -> tuple[Given, ...]:
        return tuple(g for g in self.given if g.tensor is not None)

    @property
    def written(self) -> tuple[Given, ...]:
        return tuple(g for g in self.given if g.tensor is not None and g.tensor.written)

    @property
    def results(self) -> tuple[tuple[str, int], ...]:
        """(name, bytes) of everything compared: written arguments in schema order, then outputs."""
        written = tuple((g.name, g.tensor.nbytes) for g in self.written if g.tensor is not None)
        return written + tuple((o.name, o.nbytes) for o in self.outputs)

    @property
    def out_bytes(self) -> int:
        """Bytes of the results of one call."""
        return sum(size for _, size in self.results)


class Audit(Struct, frozen=True):
    """Where the parts of one audited call lie in the audit memory: its set as it was given, then each result. Offsets in bytes."""

    given: int
    results: tuple[int, ...]
    size: int


def up(n: int, step: int = ALIGN) -> int:
    return -(-n // step) * step


def audit(layout: Layout) -> Audit:
    """The audit memory of a layout: the set's image, then the results in order, aligned. A written argument is its span."""
    at, places = up(layout.set_bytes), []
    for _, size in layout.results:
        places.append(at)
        at += up(max(size, 1))
    return Audit(0, tuple(places), at)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
