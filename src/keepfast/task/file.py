"""task.toml as text: TOML to typed keys, and the line of a key for messages.

Owns the set of keys and their types. Must not know what the values mean, and reads no other file.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from keepfast.errors import TaskError, nearest
from keepfast.model import Budget, Build, Goal, Limit, Tolerance
from keepfast.task.dispatch import DispatchKeys
from keepfast.task.engine import EngineKeys

NAME = "task.toml"
MAX_BYTES = 256 * 1024
SCHEMA = 1
HELP = "docs/tasks.md explains every key; `keepfast schema` prints them with their types"
KeyPath = tuple[str | int, ...]
Kind = TypeVar("Kind", bound=Struct)


class ArgumentKeys(Struct, frozen=True):
    role: str = "input"
    refresh: str = "element"
    dtype: str = ""


class RuleKeys(Struct, frozen=True):
    cuda_graphs: str = "allowed"
    library_kernels: str = "allowed"
    languages: tuple[str, ...] = ()
    min_axis: dict[str, int] = field(default_factory=dict)
    precision_floor: str = ""
    no_state: bool = False
    prepare: str = ""


class Keys(Struct, frozen=True):
    """Every key of task.toml with its type and default; `docs/tasks.md` says what they mean."""

    schema: int
    signature: str
    case: tuple[dict[str, Any], ...]
    title: str = ""
    languages: tuple[str, ...] = ("c",)
    entry: str = "kernel/kernel.c:kernel"
    root: str = "."
    editable: tuple[str, ...] = ("kernel/**",)
    axes: tuple[str, ...] = ()
    threads: int = 1
    oracle: str = "reference"
    prepare: str = ""
    arguments: dict[str, ArgumentKeys] = field(default_factory=dict)
    goal: Goal = Goal()
    budget: Budget = Budget()
    rules: RuleKeys = RuleKeys()
    limit: Limit = Limit()
    build: Build = Build()
    tolerance: Tolerance = Tolerance()
    engine: EngineKeys = EngineKeys()
    dispatch: DispatchKeys = DispatchKeys()


SECTIONS: dict[str, type[Struct]] = {
    "goal": Goal,
    "budget": Budget,
    "rules": RuleKeys,
    "limit": Limit,
    "build": Build,
    "tolerance": Tolerance,
    "engine": EngineKeys,
    "dispatch": DispatchKeys,
}


class Source(Struct, frozen=True):
    """A task.toml: its text, the plain TOML data, and the typed keys."""

    text: str
    data: dict[str, Any]
    keys: Keys

    def error(self, path: KeyPath, what: str, next_step: str = "") -> TaskError:
        """An error about the key at `path`, with its line."""
        return error(self.text, path, what, next_step)


def error(text: str, path: KeyPath, what: str, next_step: str = "") -> TaskError:
    line = line_of(text, path)
    return TaskError(what, where=f"{NAME}:{line}" if line else NAME, next_step=next_step or HELP)


def parse(text: str) -> Source:
    """Read the text strictly; TaskError for unknown keys, wrong types and missing keys, each with its line."""
    data = _toml(text)
    _known(text, data, Keys, ())
    for name, kind in SECTIONS.items():
        if name in data:
            _section(text, data[name], kind, (name,))
    arguments = data.get("arguments", {})
    if not isinstance(arguments, dict):
        raise error(text, ("arguments",), "`arguments` must be a table: [arguments] NAME = { ... }")
    for name, table in arguments.items():
        _section(text, table, ArgumentKeys, ("arguments", name))
    keys = _convert(text, data, Keys, ())
    if keys.schema != SCHEMA:
        raise error(text, ("schema",), f"this keepfast reads `schema = {SCHEMA}`, not {keys.schema}")
    return Source(text, data, keys)


def line_of(text: str, path: KeyPath) -> int | None:
    """Line (from 1) on which the key at `path` begins; for a path that is absent, its deepest present parent.

    The key begins after the longest prefix of the text that parses without it.
    """
    lines = text.split("\n")
    while path and not _has(_prefix(lines, len(lines)), path):
        path = path[:-1]
    if not path:
        return None
    start = 0
    for count in range(1, len(lines) + 1):
        data = _prefix(lines, count)
        if data is None:
            continue
        if _has(data, path):
            return _first_code_line(lines, start)
        start = count
    return None


def _first_code_line(lines: list[str], start: int) -> int:
    return next((i + 1 for i in range(start, len(lines)) if lines[i].split("#")[0].strip()), start + 1)


def _prefix(lines: list[str], count: int) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines[:count]) + "\n")
    except tomllib.TOMLDecodeError:
        return None


def _has(data: object, path: KeyPath) -> bool:
    for step in path:
        named = isinstance(data, dict) and step in data
        numbered = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if not (named or numbered):
            return False
        data = data[step]  # type: ignore[index]
    return data is not None


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        found = re.search(r"at line (\d+), column (\d+)", str(problem))
        where = f"{NAME}:{found[1]}" if found else NAME
        raise TaskError(f"not TOML: {problem}", where=where, next_step="The format: https://toml.io") from None
    except RecursionError:
        raise TaskError("nested too deep", where=NAME) from None


def _known(text: str, table: dict[str, Any], kind: type[Struct], path: KeyPath) -> None:
    known = [f.name for f in msgspec.structs.fields(kind)]
    for key in table:
        if key not in known:
            hint = nearest(key, known)
            inside = f" in [{'.'.join(str(p) for p in path)}]" if path else ""
            raise error(text, (*path, key), f"unknown key `{key}`{inside}.{hint}", f"Keys here: {', '.join(known)}")


def _section(text: str, table: object, kind: type[Kind], path: KeyPath) -> Kind:
    if not isinstance(table, dict):
        raise error(text, path, f"`{path[-1]}` must be a table, not {_type_words(table)}")
    _known(text, table, kind, path)
    return _convert(text, table, kind, path)


_TYPES = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list", "object": "a table"}


def _convert(text: str, table: dict[str, Any], kind: type[Kind], path: KeyPath) -> Kind:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as problem:
        raise _translated(text, str(problem), path) from None


def _translated(text: str, problem: str, path: KeyPath) -> TaskError:
    """msgspec's sentence in ours: `Expected `array`, got `str` - at `$.editable`` and its like."""
    missing = re.match(r"Object missing required field `(\w+)`", problem)
    if missing:
        name = missing[1]
        example = {"case": '[[case]] with a value for every axis, for example:  name = "small"', "schema": "schema = 1"}
        return error(text, path, f"`{name}` is missing", f"Write {example.get(name, name + ' = ...')}")
    found = re.match(r"Expected `([^`]*)`, got `([^`]*)`(?: - at `\$(.*)`)?", problem)
    if not found:
        return error(text, path, problem)
    steps = tuple(int(s[1:]) if s[1:].isdigit() else s[1:] for s in re.findall(r"\.\w+|\[\d+", found[3] or ""))
    wanted = " or ".join(_TYPES.get(w, w) for w in found[1].split(" | ") if w != "null")
    whole = (*path, *steps)
    name = next((s for s in reversed(whole) if isinstance(s, str)), "")
    inner = "every element of " if whole and isinstance(whole[-1], int) else ""
    return error(text, whole, f"{inner}`{name}` must be {wanted}, not {_TYPES.get(found[2], found[2])}")


def _type_words(value: object) -> str:
    names = {str: "str", bool: "bool", int: "int", float: "float", list: "array", dict: "object"}
    return _TYPES.get(names.get(type(value), ""), type(value).__name__)
