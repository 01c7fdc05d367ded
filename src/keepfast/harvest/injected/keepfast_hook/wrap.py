"""Puts a wrapper in place of a function, whatever way it is reached: a module's function, a method, a class that is called.

Must not know what is counted.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .tally import Tally

SCALARS = (bool, int, float, str)


class Names:
    """The arguments of a call by name, scalar defaults among them."""

    def __init__(self, names: list[str], rest: str = "args", defaults: dict[str, Any] | None = None, skip: int = 0) -> None:
        self.names, self.rest, self.defaults, self.skip = names, rest, defaults or {}, skip

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        given = args[self.skip :]
        found = {self.names[i] if i < len(self.names) else f"{self.rest}{i - len(self.names)}": v for i, v in enumerate(given)}
        found.update(kwargs)
        found.update((name, value) for name, value in self.defaults.items() if name not in found)
        order = {name: i for i, name in enumerate(self.names)}
        return sorted(found.items(), key=lambda each: (order.get(each[0], len(order)), each[0]))


def names_of(function: Any, skip: int) -> Names:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Names([], skip=skip)
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][skip:]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    wide = [p for p in (*plain, *(p for p in parameters if p.kind is p.KEYWORD_ONLY)) if type(p.default) in SCALARS or p.default is None]
    return Names([p.name for p in plain], rest, {p.name: p.default for p in wide}, skip)


def in_module(module: ModuleType, target: dict[str, str], tally: Tally) -> bool:
    """Wrap it; true when that is done, or cannot be."""
    return bool(tally.guarded(_in_module, module, target["name"], tally))


def _in_module(module: ModuleType, name: str, tally: Tally) -> bool:
    outer, _, inner = name.partition(".")
    missing = object()
    found = getattr(module, outer, missing)
    if found is missing:
        tally.found({"problem": f"the module defines no `{outer}`"})
        return True
    if inspect.isclass(found):
        _in_class(found, inner, tally)
    elif inner or not inspect.isroutine(found):
        kind = f"{type(found).__module__}.{type(found).__qualname__}"
        tally.found({"problem": f"`{name}` is a {kind}, no function: name the function that calls it, or torch.ops.NS.NAME"})
    else:
        setattr(module, outer, wrapped(found, names_of(found, 0), tally))
        tally.found(about(found))
    return True


def _in_class(found: type, inner: str, tally: Tally) -> None:
    """A method; without one apply() of an autograd.Function, or forward() of a module."""
    inner = inner or next((n for n in ("apply", "forward") if hasattr(found, n) and hasattr(found, "forward")), "__call__")
    raw = inspect.getattr_static(found, inner, None)
    function = getattr(raw, "__func__", raw)
    if not callable(function):
        tally.found({"problem": f"`{found.__name__}` has no method `{inner}`"})
        return
    skip = 0 if isinstance(raw, staticmethod) else 1
    if inner == "apply" and hasattr(found, "forward"):
        forward = inspect.getattr_static(found, "forward")
        told = names_of(getattr(forward, "__func__", forward), 0 if "setup_context" in vars(found) else 1)
        names = Names(told.names, told.rest, told.defaults, skip=1)
    else:
        forward = function
        names = names_of(function, skip + (inner == "forward" and skip == 0 and _autograd(found)))
    kind = type(raw) if isinstance(raw, (staticmethod, classmethod)) else None
    new = wrapped(function, names, tally)
    setattr(found, inner, kind(new) if kind else new)
    tally.found(about(getattr(forward, "__func__", forward)))


def _autograd(found: type) -> bool:
    return hasattr(found, "apply") and "setup_context" not in vars(found)


def about(function: Any) -> dict[str, Any]:
    """Where it stands."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return {"file": code.co_filename if code else "", "line": code.co_firstlineno if code else 0, "function": function.__qualname__}


def wrapped(function: Any, names: Callable[[Any, Any], Any], tally: Tally) -> Callable[..., Any]:
    """A function of the same kind that is looked at before it is called. A compiler that traces it sees the function alone."""
    before, after, guarded = tally.before, tally.after, tally.guarded
    compiling = _compiling()

    def plain(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return function(*args, **kwargs)
        kept = guarded(before, names, args, kwargs)
        result = function(*args, **kwargs)
        if kept is not None:
            guarded(after, kept, result)
        return result

    def generator(*args: Any, **kwargs: Any) -> Any:
        guarded(before, names, args, kwargs)
        return (yield from function(*args, **kwargs))

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        guarded(before, names, args, kwargs)
        return await function(*args, **kwargs)

    kind = coroutine if inspect.iscoroutinefunction(function) else generator if inspect.isgeneratorfunction(function) else plain
    return functools.wraps(function)(kind)


def _compiling() -> Callable[[], bool]:
    found = getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", None)
    return found if found is not None else _never


def _never() -> bool:
    return False
