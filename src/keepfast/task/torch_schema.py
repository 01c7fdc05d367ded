"""The schema of an operator as torch prints it, in keepfast's form: which arguments a task has, and what the others are given.

Must not know torch, or what is done with a signature.
"""

from __future__ import annotations

import re

from msgspec import Struct

from keepfast.errors import UsageError
from keepfast.task import given
from keepfast.task.given import Cases, Drawn, Fixed, Given, Listed
from keepfast.task.signature import parse

_SCALARS = ("int", "SymInt", "float", "bool", "str")
_LISTS = re.compile(r"(?:int|SymInt|float|bool)\[\d*\]")
_ARGUMENT = re.compile(r"(?P<type>\S.*?)\s+(?P<name>\w+)(?:=(?P<default>.+))?")


class Slot(Struct, frozen=True):
    """One argument of the operator. `text`: as the signature has it, "" when it is left out; `value`: what it is given then."""

    name: str
    keyword: bool
    text: str = ""
    value: Given | None = None
    passed: bool = True  # whether a call says it at all


def read(schema: str, said: dict[str, Given], cases: Cases) -> tuple[str, tuple[Slot, ...], tuple[tuple[str, bool], ...]]:
    """Its name, its arguments, and what it returns as (text, whether it is an argument handed back). UsageError for what cannot be held."""
    head, _, tail = schema.rpartition(" -> ")
    name, _, inner = head.removesuffix(")").partition("(")
    slots, keyword = [], False
    for part in _parts(inner):
        if part == "*":
            keyword = True
            continue
        found = _ARGUMENT.fullmatch(part)
        if found is None:
            raise UsageError(f"`{part}` of its schema is not understood", where="--op", next_step=schema)
        slots.append(_slot(found, keyword, said, cases))
    return name.rpartition("::")[2].partition(".")[0], tuple(slots), _results(tail, schema)


def _parts(text: str) -> list[str]:
    """Arguments of a schema: split at commas outside brackets and quotes."""
    parts = re.findall(r"""(?:[^,\[\]()"']|\[[^\]]*\]|\([^)]*\)|"[^"]*"|'[^']*')+""", text)
    return [part.strip() for part in parts if part.strip()]


def _slot(found: re.Match[str], keyword: bool, said: dict[str, Given], cases: Cases) -> Slot:
    kind, name, default = found["type"], found["name"], found["default"]
    mine, optional = said.get(name), kind.endswith("?")
    base = kind.removesuffix("?")
    if base == "Scalar":
        base = _number(name, mine, default, optional=optional)
    if base.startswith("Tensor") and "[" not in base:
        return _tensor(Slot(name, keyword), f"{kind} {name}" + ("=None" if default == "None" else ""), mine, cases)
    if base in _SCALARS:
        return _scalar(Slot(name, keyword), f"{base}{'?' * optional}", default, mine)
    if isinstance(mine, Listed) and _LISTS.fullmatch(base):
        return Slot(name, keyword, value=mine)
    if mine is not None and not _LISTS.fullmatch(base):
        raise UsageError(f"`{name}` is a {base}, which a task cannot set: it keeps its default", where="--arg")
    if default is not None:
        return Slot(name, keyword, passed=False)
    return _refused(name, base)


def _refused(name: str, base: str) -> Slot:
    if _LISTS.fullmatch(base):
        what = f"`{name}` is a list ({base}), which a signature cannot have: say what it is in every call"
        raise UsageError(what, where="--op", next_step=f'--arg "{name}=[n]", numbers or axes')
    step = "Write a function that calls it with tensors and numbers, then --from FILE.py:FUNCTION"
    kind = "a list of tensors" if base.startswith("Tensor") else f"a {base}"
    raise UsageError(f"`{name}` is {kind}, which a signature cannot have", where="--op", next_step=step)


def _number(name: str, mine: Given | None, default: str | None, *, optional: bool) -> str:
    """A `Scalar` is an int or a float: by what is said, else by its default."""
    if isinstance(mine, Fixed) and isinstance(mine.value, int | float):
        return "int" if isinstance(mine.value, int) else "float"
    if default not in (None, "None") or optional:
        return "int" if re.fullmatch(r"-?\d+", default or "") else "float"
    raise UsageError(f"`{name}` is a number without a default", where="--op", next_step=f'--arg "{name}=1.0"')


def _tensor(slot: Slot, text: str, mine: Given | None, cases: Cases) -> Slot:
    written, optional = "!" in text, "?" in text
    if isinstance(mine, Drawn) and mine.written and not written:
        raise UsageError(f"`{slot.name}` is not written by this operator: take the `!` away", where="--arg")
    if not isinstance(mine, Drawn | None) and not (optional and mine == Fixed(None)):
        raise UsageError(f"`{slot.name}` is a tensor", where="--arg", next_step=given.FORM)
    value: Given = mine if mine is not None else Fixed(None) if optional else given.plain(slot.name, cases)
    if isinstance(value, Drawn) and written:
        value = Drawn(value.dtype, value.dims, value.below, written=True)
    return Slot(slot.name, slot.keyword, text, value)


def _scalar(slot: Slot, kind: str, default: str | None, mine: Given | None) -> Slot:
    text = f"{kind} {slot.name}" + ("" if default is None else f"={default}")
    if isinstance(mine, Fixed):
        return Slot(slot.name, slot.keyword, text, mine)
    if mine is not None:
        raise UsageError(f"`{slot.name}` is of type {kind}", where="--arg", next_step=given.FORM)
    if default is None and not kind.endswith("?"):
        raise UsageError(f"`{slot.name}` is of type {kind} and has no default", where="--op", next_step=f'--arg "{slot.name}=VALUE"')
    return Slot(slot.name, slot.keyword, text, Fixed(_default(text)))


def _default(text: str) -> bool | int | float | str | None:
    """The default of an argument, as the signature reads it."""
    return parse(f"f(Tensor(a!) the_one, {text}) -> ()").args[1].default


def _results(tail: str, schema: str) -> tuple[tuple[str, bool], ...]:
    inner = tail.strip()
    parts = _parts(inner[1:-1]) if inner.startswith("(") else [inner]
    found = []
    for part in parts:
        words = re.fullmatch(r"Tensor(?P<alias>\(\w+!?\))?(?:\s+(?P<name>\w+))?", part)
        if words is None:
            raise UsageError(f"it returns `{part}`, where a kernel returns tensors", where="--op", next_step=schema)
        if words["alias"] and "!" not in words["alias"]:
            raise UsageError("it returns a view of its argument: there is nothing to compute", where="--op", next_step=schema)
        found.append((f"Tensor{words['alias'] or ''}{' ' + words['name'] if words['name'] else ''}", bool(words["alias"])))
    return tuple(found)


def signature(name: str, slots: tuple[Slot, ...], returns: tuple[tuple[str, bool], ...]) -> str:
    """The calling contract in keepfast's form."""
    return f"{name}({_joined(slots)}) -> {_returned(returns, slots)}"


def _joined(slots: tuple[Slot, ...]) -> str:
    parts, marked = [], False
    for slot in slots:
        if slot.keyword and slot.text and not marked:
            parts.append("*")
            marked = True
        parts += [slot.text] if slot.text else []
    return ", ".join(parts)


def _returned(returns: tuple[tuple[str, bool], ...], slots: tuple[Slot, ...]) -> str:
    """Fresh outputs alone: what is written is said by its `!`. A name that an argument has is left away."""
    taken = {slot.name for slot in slots}
    fresh = ["Tensor" if text.partition(" ")[2] in taken else text for text, back in returns if not back]
    return fresh[0] if len(fresh) == 1 else f"({', '.join(fresh)})"
