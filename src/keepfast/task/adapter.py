"""The adapter of an existing C function: keepfast's C ABI outside, the function's own argument order and types inside.

Owns matching a signature to a prototype, by name. Must not know where files lie.
"""

from __future__ import annotations

import re

from msgspec import Struct

from keepfast import dtypes, expr
from keepfast.errors import TaskError, nearest
from keepfast.model import Signature
from keepfast.task.cproto import Parameter, Prototype

_TEXT = """/* Calls {symbol}() of {path} as it stands: keepfast's order outside, its own order inside.
   Yours: a candidate may change {path}, not this file. */
#include "{include}"
#include "keepfast.h"

{prototype} {{
{unused}    {call}
}}
"""
_BY_HAND = "This adapter has to be written by hand: docs/tasks.md#adapters"
_BOUND = re.compile(r"[\w\s.+\-*/%()]+", re.ASCII)


class Match(Struct, frozen=True):
    """How the function is called: one C expression a parameter; the element type of each tensor; the output that it returns, or ""."""

    values: tuple[str, ...]
    dtypes: tuple[tuple[str, str], ...]
    returned: str
    used: tuple[str, ...]


class Wish(Struct, frozen=True):
    """What the human says beyond the names: values for parameters, element types for tensors; `cpp` when the file is C++."""

    axes: tuple[str, ...]
    bind: tuple[tuple[str, str], ...] = ()
    dtypes: tuple[tuple[str, str], ...] = ()
    cpp: bool = False


def match(signature: Signature, found: Prototype, wish: Wish) -> Match:
    """Bind every parameter of the function to an argument, an output or an axis of one name, or to what `wish.bind` says.

    TaskError for a parameter or an argument that is left over, and for types that cannot meet.
    """
    binder = _Binder(signature, found, wish)
    binder.all_known()
    values = tuple(binder.value(p) for p in found.parameters)
    returned = binder.returned()
    binder.leftovers(returned)
    return Match(values, tuple(binder.dtypes.items()), returned, tuple(dict.fromkeys(binder.used)))


def text(found: Prototype, matched: Match, prototype: str, path: str, include: str) -> str:
    """C source of the adapter. `prototype` declares the entry; `include` is the file as the adapter includes it."""
    names = re.findall(r"(\w+)[,)]", prototype)
    used = {*matched.used, matched.returned}
    unused = "".join(f"    (void){name};\n" for name in names if name not in used)
    call = _statement(found, matched)
    return _TEXT.format(symbol=found.name, path=path, include=include, prototype=prototype, unused=unused, call=call)


def _statement(found: Prototype, matched: Match) -> str:
    call = f"{found.name}({', '.join(matched.values)})"
    if matched.returned:
        return f"{matched.returned}[0] = {call};\n    return 0;"
    if found.returns.pointers == 0 and found.returns.base == "int":
        return f"return {call}; /* anything but 0 counts as a failure */"
    return f"{call};\n    return 0;"


class _Binder:
    """One pass over the parameters; remembers what was used."""

    def __init__(self, signature: Signature, found: Prototype, wish: Wish) -> None:
        self.signature, self.found, self.wish = signature, found, wish
        self.args = {a.name: a for a in signature.args}
        self.outputs = tuple(r.name for r in signature.outputs)
        self.tensors = (*(a.name for a in signature.tensors), *self.outputs)
        self.bind, self.dtypes, self.used = dict(wish.bind), dict[str, str](), list[str]()
        self.known = (*self.args, *self.outputs, *wish.axes)
        parameters = [p.name for p in found.parameters]
        stray = [name for name in self.bind if name not in parameters]
        if stray:
            step = f"Its parameters: {', '.join(parameters) or 'none'}"
            raise self.error(f"has no parameter `{stray[0]}` to bind.{nearest(stray[0], parameters)}", step)

    def error(self, what: str, next_step: str = "") -> TaskError:
        return TaskError(f"`{self.found.name}` {what}", next_step=next_step)

    def value(self, parameter: Parameter) -> str:
        name = self.bind.get(parameter.name, parameter.name)
        if name in self.known:
            self.used.append(name)
            return self.tensor(name, parameter) if name in self.tensors else self.scalar(name, parameter)
        return self.bound(parameter, name)

    def all_known(self) -> None:
        """Every parameter has a name of the signature or of an axis, or is bound. Those that do not are said at once."""
        strange = [p.name for p in self.found.parameters if p.name not in self.known and p.name not in self.bind]
        if strange:
            said = f"{'parameters' if strange[1:] else 'a parameter'} {', '.join(f'`{name}`' for name in strange)}"
            what = f"has {said} that {'are' if strange[1:] else 'is'} no argument, output or axis.{nearest(strange[0], self.known)}"
            wanted = " ".join(f"--bind {name}=VALUE" for name in strange)
            raise self.error(what, f"{wanted}   with an expression over axes and numbers, NULL, or one of: {', '.join(self.known)}")

    def tensor(self, name: str, parameter: Parameter) -> str:
        ctype = parameter.type
        if ctype.pointers != 1:
            raise self.error(f"takes `{parameter.name}` as `{ctype.text}`, where the signature has a tensor", _BY_HAND)
        written = name in self.outputs or self.args[name].written
        if written and ctype.const:
            raise self.error(f"takes `{parameter.name}` as const, so it cannot write it", "Take the `!` out of the signature")
        self.dtypes[name] = self.dtype(name, parameter)
        if ctype.array:
            if self.wish.cpp:
                raise self.error(f"takes `{parameter.name}` as an array of arrays, which C++ does not convert to", _BY_HAND)
            return f"(void *){name}"
        plain = dtypes.by_name(self.dtypes[name]).ctype == ctype.base and (written or ctype.const)
        return name if plain else f"({ctype.text}){name}"

    def dtype(self, name: str, parameter: Parameter) -> str:
        asked = dict(self.wish.dtypes).get(name, "")
        found = dtypes.by_name(asked).name if asked else parameter.type.dtype
        if not found:
            step = f"Say what it is: --dtype {name}=float32"
            raise self.error(f"takes `{parameter.name}` as `{parameter.type.text}`, which says no element type", step)
        return found

    def scalar(self, name: str, parameter: Parameter) -> str:
        arg = self.args.get(name)
        ctype = parameter.type
        if arg is not None and arg.kind == "str":
            return name if ctype.const or arg.optional else f"({ctype.text}){name}"
        if arg is not None and arg.optional:
            raise self.error(f"cannot be told that `{name}` is absent", "Make it a plain argument, without `?`")
        if arg is not None and arg.kind == "float" and ctype.dtype and not dtypes.by_name(ctype.dtype).is_float:
            raise self.error(f"takes `{parameter.name}` as `{ctype.text}`, where the signature has a float", f"Write `int {name}`")
        if ctype.pointers == 0:
            return name if ctype.base in ("int64_t", "double") else f"({ctype.base}){name}"
        if ctype.pointers > 1 or self.wish.cpp or not ctype.dtype:
            raise self.error(f"takes `{parameter.name}` as `{ctype.text}`, where the signature has a number", _BY_HAND)
        return f"&({ctype.base}){{({ctype.base}){name}}}"

    def bound(self, parameter: Parameter, text: str) -> str:
        """A value that is no single name: an expression that means the same in C, or NULL."""
        if text == "NULL" and parameter.type.pointers:
            return "NULL"
        scalars = (*(a.name for a in self.args.values() if a.kind in ("int", "float", "bool")), *self.wish.axes)
        if _BOUND.fullmatch(text) is None or "**" in text or "//" in text:
            step = "Bind it to a name, a number, or an expression with + - * / % and ( )"
            raise self.error(f"cannot have `{parameter.name}` bound to `{text}`", step)
        self.used.extend(expr.parse(text, scalars).names)
        if parameter.type.pointers:
            raise self.error(f"takes `{parameter.name}` as `{parameter.type.text}`: bind it to a tensor or NULL, not to `{text}`")
        return f"({parameter.type.base})({text})"

    def returned(self) -> str:
        """The one output that no parameter takes, if the function returns a number."""
        left = [name for name in self.outputs if name not in self.used]
        ctype = self.found.returns
        if len(left) != 1 or ctype.pointers or not ctype.dtype:
            return ""
        self.dtypes[left[0]] = ctype.dtype
        return left[0]

    def leftovers(self, returned: str) -> None:
        needed = (*self.args, *self.outputs)
        left = [name for name in needed if name not in self.used and name != returned]
        if left:
            names = ", ".join(p.name for p in self.found.parameters) or "none"
            step = f"Name it after the parameter it goes to, or --bind PARAMETER={left[0]}, or take it out of the signature"
            raise self.error(f"has no parameter for `{left[0]}` of the signature. Its parameters: {names}", step)
