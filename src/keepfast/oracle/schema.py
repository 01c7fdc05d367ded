"""`python -m keepfast.oracle.schema < QUESTION`: an operator's schema, and what a trial call of it says. JSON in, JSON out.

For `keepfast init --op`; nothing it says is a verdict. Must not know tasks.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from keepfast.errors import nearest
from keepfast.oracle import tensors
from keepfast.task.asked import AskSchema, AskTrial, Schema, Trial, Value

LARGEST = 1 << 26  # elements of a trial call
# What torch raises for a call that it does not know, or cannot make here.
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)


def schema(asked: AskSchema) -> Schema:
    for module in asked.imports:
        importlib.import_module(module)
    namespace, _, name = asked.name.removeprefix("torch.ops.").replace("::", ".").partition(".")
    name, _, inner = name.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None) if name else None
    if packet is None:
        return Schema(error=f"torch has no operator {namespace}::{name}", step=_hint(namespace, name))
    overloads = {o: getattr(packet, o) for o in packet.overloads()}
    wanted = asked.overload or inner
    chosen = wanted or _usual(overloads)
    if chosen not in overloads:
        shown = "\n  ".join(str(op._schema) for op in overloads.values())
        what = f"{namespace}::{name} has no overload `{wanted}`" if wanted else f"{namespace}::{name} has several overloads"
        return Schema(error=what, step=f"Choose one: --overload NAME, the word after the dot\n  {shown}")
    op = overloads[chosen]
    return Schema(f"{namespace}.{name}.{chosen}", str(op._schema), torch.Tag.nondeterministic_seeded in op.tags)


def _usual(overloads: dict[str, Any]) -> str:
    """The overload that is meant when none is named: the default, or the one on tensors, or the only one that returns what it makes."""
    on_tensors = [o for o, op in overloads.items() if any("Tensor" in str(a.type) for a in op._schema.arguments)]
    fresh = [o for o in on_tensors if not any(a.is_out for a in overloads[o]._schema.arguments)]
    return next((o for o in ("default", "Tensor") if o in on_tensors), fresh[0] if len(fresh) == 1 else "")


def _hint(namespace: str, name: str) -> str:
    known = [n.partition("::")[2].partition(".")[0] for n in torch._C._dispatch_get_all_op_names() if n.startswith(f"{namespace}::")]
    if not known:
        return f"Nothing has registered operators of `{namespace}`: --import MODULE, the module that does"
    return nearest(name, sorted(set(known))).strip() or f"--import MODULE, if a module registers further operators of `{namespace}`"


# --------------------------------------------------------------------------------------------- a trial call


def trial(asked: AskTrial) -> Trial:
    for module in asked.imports:
        importlib.import_module(module)
    if sum(_count(v) for v in asked.values) > LARGEST:
        return Trial()
    op = _operator(asked.name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = [(v, _made(v, device)) for v in asked.values]
    try:
        working = _called(op, given)
    except NotImplementedError:
        return Trial()  # not on this device
    except REFUSALS as problem:
        said = str(problem).partition("\n")[0]
        return Trial() if "not implemented for" in said else Trial(error=said or type(problem).__name__)
    table = torch._decomp.decomposition_table
    ways: list[tuple[str, Callable[..., Any] | None]] = [("op", op), ("decomposition", table.get(op))]
    return Trial(next((way for way, call in ways if call is not None and _exact(call, given, working)), ""), ran=True)


def _operator(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def _count(value: Value) -> int:
    count = 1
    for size in value.shape:
        count *= size
    return count if value.dtype else 0


def _made(value: Value, device: str) -> Any:
    if not value.dtype:
        return value.value
    kind = tensors.dtype_of(value.dtype)
    if kind.is_floating_point:
        return torch.randn(value.shape, device=device).to(kind)
    return torch.randint(0, value.below or (2 if kind == torch.bool else 100), value.shape, device=device).to(kind)


def _called(op: Callable[..., Any], given: list[tuple[Value, Any]]) -> tuple[Any, ...]:
    """The tensors that a call returned, or wrote when it returned none; arguments are copies."""
    values = [(v, tensors.copy(made)) for v, made in given]
    found = op(*(made for v, made in values if v.positional), **{v.name: made for v, made in values if not v.positional})
    parts = tuple(found) if isinstance(found, tuple | list) else (found,)
    return parts if found is not None else tuple(made for _, made in values if isinstance(made, torch.Tensor))


def _exact(op: Callable[..., Any], given: list[tuple[Value, Any]], working: tuple[Any, ...]) -> bool:
    """Whether the call gives float64 for float64, where it gives floats for floats."""
    try:
        found = _called(op, [(v, tensors.wide(made)) for v, made in given])
    except REFUSALS:
        return False
    if len(found) != len(working):
        return False
    pairs = zip(found, working, strict=True)
    return all(isinstance(f, torch.Tensor) and (f.dtype == torch.float64 or not w.dtype.is_floating_point) for f, w in pairs)


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # what modules print is no answer
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=AskSchema | AskTrial)
    with open(out, "wb") as file:
        file.write(msgspec.json.encode(schema(asked) if isinstance(asked, AskSchema) else trial(asked)))


if __name__ == "__main__":
    main()
