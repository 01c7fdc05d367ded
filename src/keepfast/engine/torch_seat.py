"""A kernel in its slot, called with what the model has at that place, and the count of such calls. Must not know models."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from keepfast.engine import slots
from keepfast.engine.torch_entry import Entry, heard, place
from keepfast.engine.torch_stage import Moment
from keepfast.engine.transformers import Fill
from keepfast.errors import TaskError

Patch = tuple[Any, Callable[..., Any]]
"""A module, and its forward function in an arm."""


class Tally:
    """Calls of filled slots, and the time in them where the host's clock says something (`timed`)."""

    def __init__(self, *, timed: bool) -> None:
        self.timed = timed
        self.calls: Counter[str] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)

    def clear(self) -> None:
        self.calls.clear()
        self.seconds.clear()


class Crashed(TaskError):
    """The kernel raised, or returned what no model can use: a verdict on the kernel, and the account goes on without its arm."""


class Broke(Crashed):
    """The kernel left nothing to go on with: a card that computes no more, or a cache that all arms share. The account ends there."""


class Seat:
    """A kernel in its slot. `expected`: calls in one decode step, or prefill. While a model is probed, `stand_in` is called instead, or
    the model's own code runs (`muted`). `fault` damages what the kernel makes, to see whether the logits show it."""

    def __init__(self, fill: Fill, entry: Entry, taken: tuple[slots.Taken, ...], moment: Moment, tally: Tally) -> None:
        self.fill, self.entry, self.taken, self.moment, self.tally = fill, entry, taken, moment, tally
        self.expected = 0
        self.stand_in: Callable[..., Any] | None = None
        self.muted = False
        self.fault: Callable[[Any], None] | None = None

    @property
    def where(self) -> str:
        return place(self.fill)

    @property
    def on(self) -> bool:
        return self.moment.on(self.fill.phase) and not self.muted

    def takes(self, name: str) -> bool:
        return any(t.name == name for t in self.taken)

    @torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
    def __call__(self, like: Any, given: dict[str, Any]) -> Any:
        """The entry on what it takes of `given`. `like`: (shape, type) of the new tensor that it must return, or None."""
        if self.stand_in is not None:
            return self.stand_in(**{t.name: given[t.name] for t in self.taken if t.given})
        values = [given[t.name] if t.given else t.default for t in self.taken]
        began = time.perf_counter()
        try:
            with heard(self.fill, "", lambda: f"It was given {_listed(self.taken, values)}"):
                made = self.entry.function(*values)
        except TaskError as error:
            raise Crashed(error.what, where=error.where, next_step=error.next_step) from error
        self.tally.calls[self.fill.slot] += 1
        if self.tally.timed:
            self.tally.seconds[self.fill.slot] += time.perf_counter() - began
        made = None if like is None else self._checked(made, like)
        return made if self.fault is None else self._damaged(made, given)

    def _damaged(self, made: Any, given: dict[str, Any]) -> Any:
        """With the planted fault in it; of a slot that writes, in the first argument that it writes."""
        if self.fault is None:
            return made
        if made is None:
            self.fault(given[next(o.name for o in slots.kind(self.fill.slot).offers if o.written)])
            return None
        made = made.clone(memory_format=torch.contiguous_format)
        self.fault(made)
        return made

    def _checked(self, made: Any, like: Any) -> Any:
        """What the entry returned, when it is the one tensor that the slot wants."""
        if isinstance(made, tuple | list) and len(made) == 1:
            made = made[0]
        shape, dtype = like
        if not isinstance(made, torch.Tensor) or tuple(made.shape) != tuple(shape) or made.dtype != dtype:
            what = f"it returned {_shape(made)}, and the model needs {named(dtype)} {list(shape)}"
            raise Crashed(what, where=self.where, next_step="Return a new tensor of this shape and type")
        return made


@contextmanager
def standing_in(seats: tuple[Seat, ...], seat: Seat, function: Callable[..., Any]) -> Iterator[None]:
    """Inside, `function` is called in place of the kernel of `seat`, and the other seats are empty."""
    for other in seats:
        other.muted = other is not seat
    seat.stand_in = function
    try:
        yield
    finally:
        seat.stand_in = None
        for other in seats:
            other.muted = False


def _listed(taken: tuple[slots.Taken, ...], values: list[Any]) -> str:
    return ", ".join(f"{t.name} {_shape(v)}" for t, v in zip(taken, values, strict=True))


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{named(value.dtype)} {list(value.shape)}"
    return repr(value) if isinstance(value, bool | int | float | str | None) else type(value).__name__


def named(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
