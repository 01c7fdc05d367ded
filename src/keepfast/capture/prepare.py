"""`prepare` beside the entry: which arguments it takes, and what the entry is called with then. docs/tasks.md has the contract.

Runs code of the candidate: whatever it raises passes through. Must not know memory, streams, graphs or plans.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from keepfast.capture.refusals import Refused
from keepfast.gpu.layout import Given, Layout

SYMBOL = "prepare"
WEIGHTS, STEP = "weights", "step"  # outside the clock, on weights alone; inside it, as a part of every call


class Prepare:
    """A function and the places of the arguments that it takes by name. `mode`: WEIGHTS or STEP."""

    def __init__(self, function: Callable[..., object], takes: tuple[tuple[int, str], ...], mode: str) -> None:
        self.function, self.takes, self.mode = function, takes, mode

    def __call__(self, arguments: Sequence[object]) -> object:
        return self.function(**{name: arguments[place] for place, name in self.takes})

    def instead(self, arguments: Sequence[object], packed: object) -> list[object]:
        """What the entry gets: `packed` where the first argument stood that `prepare` takes, and none of the others."""
        first, *rest = sorted(place for place, _ in self.takes)
        return [packed if place == first else value for place, value in enumerate(arguments) if place not in rest]


def bound(found: object, layout: Layout, mode: str) -> Prepare | None:
    """What the entry's file calls `prepare`, held against the arguments of a case. None where there is none, or nobody asked for it
    (`mode` ""). Refused when it cannot be called so."""
    if found is None or not mode:
        return None
    if not inspect.isfunction(found):
        raise Refused("import", f"`prepare` beside the entry is a {type(found).__name__}, not a function: give it another name")
    places = {given.name: place for place, given in enumerate(layout.given)}
    names = tuple(p.name for p in inspect.signature(found).parameters.values() if _taken(p, places))
    for name in names:
        if why := _unfit(layout.given[places[name]], mode):
            raise Refused("import", f"`prepare` takes `{name}`, {why}")
    if not names:
        raise Refused("import", f"`prepare` takes none of the arguments {', '.join(places)}: it is called with those that it names")
    return Prepare(found, tuple((places[name], name) for name in names), mode)


def _taken(parameter: inspect.Parameter, places: dict[str, int]) -> bool:
    """Whether it is an argument of the task. Others keep their default; Refused for those that have none."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise Refused("import", f"`prepare` takes `{parameter}`: it names the arguments that it wants, one by one")
    if parameter.name not in places and parameter.default is parameter.empty:
        raise Refused("import", f"`prepare` takes `{parameter.name}`, and the arguments are {', '.join(places)}")
    return parameter.name in places


def _unfit(given: Given, mode: str) -> str:
    """Why `prepare` cannot have this argument, or "". A weight that is None in this case has no role any more."""
    if mode == STEP or (given.kind == "tensor" and given.tensor is None):
        return ""
    if given.tensor is not None and given.tensor.role == "weight":
        return ""
    role = f"has the role `{given.tensor.role}`" if given.tensor is not None else "is a number"
    return f"which {role}: it is called with weights, before anything else of a call is known"


def packed(value: Any, fits: Callable[[Any], str], depth: int = 0) -> Any:
    """`value`, when it is a tensor, a plain scalar, or tuples, lists and dicts of them; Refused else. `fits`: why a tensor does not."""
    if value is None or type(value) in (int, float, bool, str):
        return value
    if type(value) in (tuple, list, dict) and depth < 8:
        for part in value.values() if type(value) is dict else value:
            packed(part, fits, depth + 1)
        return value
    if why := fits(value):
        raise Refused("result", f"`prepare` returned {why}: expected tensors and plain numbers, or tuples, lists and dicts of them")
    return value
