"""Faults planted in what a kernel makes: whether a model's logits would show them. Must not know models, clocks or bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from keepfast.engine.torch_seat import Seat


def _zeros(made: Any) -> None:
    made.zero_()


def _tail(made: Any) -> None:
    """The last eighth of each row: a block that a mask or a grid left out."""
    rest = made.view(made.shape[0], -1)
    rest[:, -max(1, rest.shape[1] // 8) :] = 0


def _short(made: Any) -> None:
    made.mul_(0.9)


FAULTS: dict[str, Callable[[Any], None]] = {"zeros": _zeros, "its last eighth zero": _tail, "a tenth too small": _short}


@contextmanager
def planted(seat: Seat, fault: str) -> Iterator[None]:
    """Inside, what the kernel in `seat` makes is damaged."""
    seat.fault = FAULTS[fault]
    try:
        yield
    finally:
        seat.fault = None
