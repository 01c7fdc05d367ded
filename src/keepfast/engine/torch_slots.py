"""Filled slots: whether each fits the model, and switching from arm to arm.

Owns the patches: forward functions of single modules, and entries of the library's attention registry. The model's weights are never
changed. Must not know clocks, cells or likeness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from msgspec import Struct

from keepfast.engine import slots
from keepfast.engine.base import STOCK
from keepfast.engine.torch_attention import attention_needs, registered
from keepfast.engine.torch_entry import Raised, load
from keepfast.engine.torch_model import layers
from keepfast.engine.torch_places import PUT
from keepfast.engine.torch_seat import Broke, Crashed, Patch, Seat, Tally, named
from keepfast.engine.torch_stage import Moment
from keepfast.engine.transformers import Arm, Fill, Plan
from keepfast.errors import KeepfastError, TaskError
from keepfast.task.signature import parse

REFUSALS = (KeepfastError, RuntimeError, ImportError, ValueError, TypeError, AssertionError)  # of libraries that cannot do it


class Dress(Struct, frozen=True):
    """An arm made ready for one model. `attention`: a name in the library's registry."""

    arm: Arm
    attention: str
    seats: tuple[Seat, ...]
    patches: tuple[Patch, ...]


class Wardrobe:
    """All arms over one model, of which it wears one at a time. `worn` is told which, before its code runs."""

    def __init__(self, model: Any, plan: Plan, tally: Tally, worn: Callable[[str], None] = lambda arm: None) -> None:
        self.model, self.plan, self.tally, self.moment, self.tell = model, plan, tally, Moment(), worn
        self._worn: Dress | None = None
        self.dropped: list[tuple[str, str]] = []  # arm, and why it cannot run
        self.crashed: dict[str, str] = {}  # arm, and what its kernel raised
        self.dresses: dict[str, Dress] = {}
        for number, arm in enumerate(plan.arms):
            self.tell(arm.name)
            with self.or_dropped(arm.name):
                self.dresses[arm.name] = self._made(arm, number)
        self.tell(STOCK)

    @property
    def patched(self) -> tuple[str, ...]:
        """Arms that have kernels, those that did not load too."""
        return tuple(a.name for a in self.plan.arms if a.fills)

    @property
    def named(self) -> tuple[str, ...]:
        """Arms of the account: a kernel that did not load has one too, without laps."""
        return tuple(a.name for a in self.plan.arms if a.name in self.dresses or a.name in self.crashed)

    @contextmanager
    def or_dropped(self, arm: str, where: str = "") -> Iterator[None]:
        """Inside, what an arm with kernels raises takes it out, because stock ran there; what one without raises does when the plan says
        so. Stock must run, and what does not fit a slot is said by a TaskError, which ends the account."""
        try:
            yield
        except Crashed as error:
            self.crashed.setdefault(arm, f"{where}{error.where}: {error.what}; {error.next_step}")
            if isinstance(error, Broke):
                raise
        except Exception as error:  # a kernel may raise anything
            said = f"{where}{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            if arm in self.patched and not isinstance(error, KeepfastError):
                self.crashed.setdefault(arm, said)
            elif self.plan.skip and arm != STOCK and arm not in self.patched and isinstance(error, REFUSALS):
                self.dropped.append((arm, said))
            else:
                raise

    def wear(self, name: str) -> Dress:
        dress = self.dresses[name]
        if dress is self._worn:
            return dress
        self.tell(name)
        for module, _ in self._worn.patches if self._worn is not None else ():
            module.__dict__.pop("forward", None)
        for module, forward in dress.patches:
            module.forward = forward
        self.model.config._attn_implementation = dress.attention
        self._worn = dress
        return dress

    def _made(self, arm: Arm, number: int) -> Dress:
        seats = tuple(self._seat(fill, number * 100 + i) for i, fill in enumerate(arm.fills))
        doubled = next((s for s, n in Counter((s.fill.slot, s.fill.phase, s.fill.only) for s in seats).items() if n > 1), None)
        if doubled is not None:
            raise TaskError(
                f"two tasks fill slot {doubled[0]}", where=f"arm {arm.name}", next_step='Give them phases, or `only = "*.down_proj"`'
            )
        library = arm.attention or self.plan.attention
        return Dress(arm, registered(self.model, library, seats, number, self.moment), seats, _patches(self.model, seats))

    def _seat(self, fill: Fill, number: int) -> Seat:
        kind = slots.kind(fill.slot)
        taken = slots.fit(kind, parse(fill.signature), fill.task, needs(self.model, fill.slot))
        _same_types(self.model, kind, fill)
        try:
            entry = load(fill, number)
        except Raised as error:
            raise Crashed(error.what, where=error.where, next_step=error.next_step) from error
        seat = Seat(fill, entry, taken, self.moment, self.tally)
        seat.expected = len(layers(self.model))  # of attention; the others count their places
        return seat


def _patches(model: Any, seats: tuple[Seat, ...]) -> tuple[Patch, ...]:
    """Each module once, with the last forward: a seat is put over what earlier ones have put there, and calls that when it is off."""
    found: dict[int, Patch] = {}
    try:
        for seat in seats:
            put = PUT.get(seat.fill.slot)
            for module, forward in put(model, seat, seats) if put is not None else ():
                module.forward = forward
                found[id(module)] = (module, forward)
    finally:
        for module, _ in found.values():
            del module.__dict__["forward"]
    return tuple(found.values())


# --------------------------------------------------------------------------------------------- what the model needs


def needs(model: Any, slot: str) -> dict[str, str]:
    """Arguments that this model makes necessary, each with why. TaskError when the slot does not exist in this model at all."""
    if slot in ("attention_decode", "attention_prefill"):
        return attention_needs(model, slot)
    if slot == "linear":
        biased = next((n for n, m in model.named_modules() if type(m) is torch.nn.Linear and m.bias is not None), None)
        return {"bias": f"{biased} has one"} if biased is not None else {}
    return {}


def _same_types(model: Any, kind: slots.SlotKind, fill: Fill) -> None:
    """TaskError when the task says another element type than the model has."""
    fixed = {"lengths": "int32", "positions": "int32", "router_indices": "int64", "weight_scale": "float32", "routing_weights": ""}
    quantised = any(name == "weight_scale" for name, _ in fill.arguments) or "weight_scale" in fill.signature
    for name, dtype in fill.arguments:
        offer = kind.offer(name)
        has = fixed.get(name, named(model.dtype))
        if offer is None or offer.kind != "tensor" or not has or (name == "weight" and quantised):
            continue
        if dtype != has:
            what = f"`{name}` is {dtype} in the task, and the model gives {has}"
            raise TaskError(what, where=f"slot {fill.slot}, task {fill.task}", next_step=f'Set dtype = "{dtype}", or use a task for {has}')
