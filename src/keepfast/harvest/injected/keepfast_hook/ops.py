"""An operator of torch. One of a namespace of its own is wrapped where Python calls it, which compiled code does too; one of `aten` is
watched by a dispatch mode in every thread, which sees calls from C++ and none that a compiler fused away.

Must not know what is counted.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .tally import Tally
from .wrap import Names, wrapped

INSIDE = ("aten", "prim", "prims")


def install(torch: ModuleType, target: dict[str, str], tally: Tally) -> bool:
    """After torch was imported."""
    tally.guarded(_mode if target["module"] in INSIDE else _override, torch, target, tally)
    return True


def _outermost(function: Any, names: Callable[[Any, Any], Any], tally: Tally) -> Any:
    """Torch calls an operator from within itself to look at it: that is the same call."""
    watched, local = wrapped(function, names, tally), threading.local()

    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(local, "inside", False):
            return function(*args, **kwargs)
        local.inside = True
        try:
            return watched(*args, **kwargs)
        finally:
            local.inside = False

    return functools.wraps(function)(call)


def _names(schema: Any) -> Names:
    plain = [a for a in schema.arguments if not a.kwarg_only]
    has = [a for a in schema.arguments if a.has_default_value()]
    defaults = {a.name: a.default_value for a in has if a.default_value is None or type(a.default_value) in (bool, int, float, str)}
    return Names([a.name for a in plain], defaults=defaults)


def _override(torch: Any, target: dict[str, str], tally: Tally) -> None:
    """Each overload, and the packet that chooses among them, as soon as it is made."""
    ops, wanted = torch._ops, f"{target['module']}::{target['name']}"
    overload, packet = ops.OpOverload.__init__, ops.OpOverloadPacket.__init__

    def an_overload(self: Any, *args: Any, **kwargs: Any) -> None:
        overload(self, *args, **kwargs)
        if self._schema.name == wanted:
            self._op = _outermost(self._op, _names(self._schema), tally)
            tally.guarded(tally.found, {"schema": str(self._schema)})

    def a_packet(self: Any, *args: Any, **kwargs: Any) -> None:
        packet(self, *args, **kwargs)
        if self._qualified_op_name == wanted:
            self._op = _outermost(self._op, _of_packet(self), tally)

    ops.OpOverload.__init__, ops.OpOverloadPacket.__init__ = an_overload, a_packet


def _of_packet(packet: Any) -> Callable[[Any, Any], list[tuple[str, Any]]]:
    """Names by its first overload, which is not made before a call: made earlier it would not know where it belongs."""
    known: list[Names] = []

    def names(args: Any, kwargs: Any) -> list[tuple[str, Any]]:
        if not known:
            known.append(_names(getattr(packet, packet.overloads()[0])._schema))
        return known[0](args, kwargs)

    return names


def _mode(torch: Any, target: dict[str, str], tally: Tally) -> None:
    base = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    packet = getattr(getattr(torch.ops, target["module"]), target["name"])
    tally.found({"schema": str(getattr(packet, packet.overloads()[0])._schema)})
    known: dict[Any, Names] = {}

    def dispatched(self: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function.overloadpacket is not packet:
            return function(*args, **kwargs)
        if function not in known:
            known[function] = _names(function._schema)
        kept = tally.guarded(tally.before, known[function], args, kwargs)
        result = function(*args, **kwargs)
        if kept is not None:
            tally.guarded(tally.after, kept, result)
        return result

    # torch.compile would refuse to work below any other mode; what it compiles is hidden from this one
    hidden = classmethod(lambda cls: True)
    mode = type("Seen", (base,), {"__torch_dispatch__": dispatched, "ignore_compile_internals": hidden})
    mode().__enter__()
    started = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def with_mode(self: Any) -> None:
        tally.guarded(lambda: mode().__enter__() and None)
        started(self)

    threading.Thread._bootstrap_inner = with_mode  # type: ignore[attr-defined]
