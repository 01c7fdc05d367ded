"""Call tables: what the runner is told to call, as sealed words. Format in runner/runner.c."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from keepfast.wire import table
from keepfast.judge.sets import Draw


@contextmanager
def call_table(bank: tuple[Draw, ...], count: int, regions: tuple[int, int]) -> Iterator[int]:
    """A table of `count` rows, row i on set i with the scalars of draw i % len(bank). `regions`: indices of input and output buffer."""
    kinds = [{"raw": 0, "null": 0, "in": regions[0] + 1, "out": regions[1] + 1}[w.kind] for w in bank[0].words]
    rows = [_row(bank[i % len(bank)], i) for i in range(count)]
    fd = table(kinds, rows)
    try:
        yield fd
    finally:
        os.close(fd)


def _row(draw: Draw, index: int) -> list[int]:
    step = {"in": draw.layout.in_bytes, "out": draw.layout.out_bytes}
    return [w.value + index * step.get(w.kind, 0) for w in draw.words]
