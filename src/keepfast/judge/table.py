"""Call tables: what the runner is told to call, as sealed words. Format in runner/runner.c."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from keepfast import wire
from keepfast.judge.sets import Draw, Layout, Slot
from keepfast.model import Signature


@contextmanager
def call_table(bank: tuple[Draw, ...], count: int, regions: tuple[int, int]) -> Iterator[int]:
    """A table of `count` rows, row i on set i with the scalars of draw i % len(bank). `regions`: indices of input and output buffer."""
    kinds = [{"raw": 0, "null": 0, "in": regions[0] + 1, "out": regions[1] + 1}[w.kind] for w in bank[0].words]
    rows = [_row(bank[i % len(bank)], i) for i in range(count)]
    fd = wire.table(kinds, rows)
    try:
        yield fd
    finally:
        os.close(fd)


def _row(draw: Draw, index: int) -> list[int]:
    step = {"in": draw.layout.in_bytes, "out": draw.layout.out_bytes}
    return [w.value + index * step.get(w.kind, 0) for w in draw.words]


def described(sig: Signature, layout: Layout) -> wire.Layout:
    """What the first words of a call are, for a runner that needs to be told (Python)."""
    slots = {s.name: s for s in layout.slots}
    kinds = {a.name: a.kind for a in sig.args if a.kind != "tensor"}
    names = [a.name for a in sig.args] + [r.name for r in sig.outputs]
    return tuple(wire.Scalar(n, kinds[n]) if n in kinds else _tensor(n, slots.get(n)) for n in names)


def _tensor(name: str, slot: Slot | None) -> wire.Tensor:
    if slot is None:  # an optional argument that is not there
        return wire.Tensor(name, "uint8", (), ())
    return wire.Tensor(name, slot.dtype, slot.shape, slot.strides, 0, slot.base + slot.span - slot.start)
