"""tunables.toml: the numbers of a kernel that a search may change, and only their values.

    constraints = ["BLOCK_M * BLOCK_N <= 4096"]    # expressions over the names, all must hold
    [BLOCK_M]
    choices = [16, 32, 64]                         # or range = [lo, hi, step], or log2 = [lo, hi]: the powers of two from lo to hi
    value = 32

Owns the format and what is generated from it for C and Python. Must not know how values are proposed.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from keepfast import expr
from keepfast.errors import TaskError, nearest
from keepfast.task.signature import reserved

Value = int | float | str | bool
Pairs = tuple[tuple[str, Value], ...]
MAX_CHOICES = 10_000
MAX_TUNABLES = 64
FILE = "tunables.toml"


class Tunable(Struct, frozen=True):
    name: str
    choices: tuple[Value, ...]
    value: Value


class Space(Struct, frozen=True):
    """Declared tunables in file order, and what must hold between them."""

    tunables: tuple[Tunable, ...]
    constraints: tuple[expr.Expr, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(t.name for t in self.tunables)

    @property
    def values(self) -> Pairs:
        """The values as the file has them."""
        return tuple((t.name, t.value) for t in self.tunables)

    @property
    def size(self) -> int:
        """Combinations, constraints not counted."""
        return math.prod(len(t.choices) for t in self.tunables)

    def choices(self, name: str) -> tuple[Value, ...]:
        """All values that `name` may have; TaskError for an unknown name."""
        found = next((t.choices for t in self.tunables if t.name == name), None)
        if found is None:
            raise TaskError(_unknown(name, self.names), where=FILE)
        return found

    def valid(self, values: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> str | None:
        """Why `values` may not be set, or None. Names left out keep their present value."""
        given = dict(values)
        for name, value in given.items():
            if name not in self.names:
                return _unknown(name, self.names)
            if not any(_same(value, choice) for choice in self.choices(name)):
                return f"{name} = {literal(value)} is not one of its declared values ({_shown(self.choices(name))})"
        merged = dict(self.values) | given
        return next((why for c in self.constraints if (why := _broken(c, merged))), None)


def parse(text: str) -> Space:
    """Read a tunables.toml; TaskError says what is wrong with which tunable."""
    data = _toml(text)
    constraints = data.pop("constraints", [])
    if len(data) > MAX_TUNABLES:
        raise _error(f"more than {MAX_TUNABLES} tunables")
    tunables = tuple(_tunable(name, table) for name, table in data.items())
    for tunable in tunables:
        if _value_line(text, tunable.name) is None:
            raise _error(f"[{tunable.name}] needs a line of its own, and so does its `value = ...`")
    space = Space(tunables, _constraints(constraints, tunables))
    why = space.valid(space.values)
    if why:
        raise _error(why)
    return space


def with_values(text: str, values: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> str:
    """`text` with new values: only `value = ...` lines change, everything else stays byte for byte.

    TaskError when `Space.valid` says no, as the text then would not parse.
    """
    wanted = dict(values)
    space = parse(text)
    why = space.valid(wanted)
    if why:
        raise _error(why)
    lines = text.split("\n")
    for name, value in wanted.items():
        found = _value_line(text, name)
        if found is None:
            raise _error(f"[{name}] has no `value = ...` line")
        number, match = found
        lines[number] = f"{match['head']}{literal(value)}{match['tail']}"
    changed = "\n".join(lines)
    if dict(parse(changed).values) != dict(space.values) | wanted:
        raise _error("the values cannot be told from the text: write each `value = ...` on a line of its own")
    return changed


def header(space: Space) -> str:
    """The text of keepfast_tunables.h. A text value `row` of LAYOUT also defines LAYOUT_row as 1, for `#if`."""
    lines = [line for name, value in space.values for line in _defines(name, value)]
    body = "\n".join(lines)
    top = "/* Written by keepfast from tunables.toml; changes here are lost. */"
    return f"{top}\n#ifndef KEEPFAST_TUNABLES_H\n#define KEEPFAST_TUNABLES_H\n\n{body}\n\n#endif\n"


def python(space: Space) -> str:
    """The text of keepfast_tunables.py: `from keepfast_tunables import BLOCK`. Plain constants."""
    lines = "".join(f"{name} = {value!r}\n" for name, value in space.values)
    return f'"""Written by keepfast from tunables.toml; changes here are lost."""\n\n{lines}'


def literal(value: Value) -> str:
    """`value` as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


# --------------------------------------------------------------------------------------------- reading


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _error(f"not TOML: {error}") from None


def _tunable(name: str, table: object) -> Tunable:
    why = reserved(name)
    if why:
        raise _error(why)
    if not isinstance(table, dict):
        raise _error(f"`{name}` must be a table: [{name}] with choices, range or log2, and value")
    unknown = [key for key in table if key not in ("choices", "range", "log2", "value")]
    if unknown:
        raise _error(f"[{name}] unknown key `{unknown[0]}`.{nearest(unknown[0], ['choices', 'range', 'log2', 'value'])}")
    kinds = [key for key in ("choices", "range", "log2") if key in table]
    if len(kinds) != 1 or "value" not in table:
        raise _error(f"[{name}] needs `value` and exactly one of choices, range, log2")
    spec = table[kinds[0]]
    if not isinstance(spec, list):
        raise _error(f"[{name}] {kinds[0]} must be a list")
    choices = {"choices": _choices, "range": _range, "log2": _log2}[kinds[0]](name, spec)
    return Tunable(name, choices, table["value"])


def _choices(name: str, spec: list[object]) -> tuple[Value, ...]:
    found: list[Value] = []
    for value in spec:
        if not isinstance(value, (int, float, str)) or (isinstance(value, float) and not math.isfinite(value)):
            raise _error(f"[{name}] choices may be numbers, texts, true and false")
        if isinstance(value, str) and not value.isprintable():
            raise _error(f"[{name}] a choice has unprintable characters")
        if any(_same(value, other) for other in found):
            raise _error(f"[{name}] choice {literal(value)} stands twice")
        found.append(value)
    if not found or len(found) > MAX_CHOICES:
        raise _error(f"[{name}] needs 1 to {MAX_CHOICES} choices")
    return tuple(found)


def _range(name: str, spec: list[object]) -> tuple[Value, ...]:
    numbers = _numbers(name, "range = [lo, hi] or [lo, hi, step]", spec, (2, 3))
    low, high, step = numbers if len(numbers) == 3 else (*numbers, 1)
    if step <= 0 or high < low:
        raise _error(f"[{name}] range needs lo <= hi and a step above 0")
    if (high - low) / step >= MAX_CHOICES:
        raise _error(f"[{name}] range has more than {MAX_CHOICES} values")
    if all(isinstance(n, int) for n in (low, high, step)):
        return tuple(range(int(low), int(high) + 1, int(step)))
    count = math.floor((high - low) / step + 1e-9) + 1
    return tuple(float(round(low + i * step, 12)) for i in range(count))


def _log2(name: str, spec: list[object]) -> tuple[Value, ...]:
    low, high = _numbers(name, "log2 = [lo, hi]", spec, (2, 2))
    powers = [2**i for i in range(64)]
    if low not in powers or high not in powers or low > high:
        raise _error(f"[{name}] log2 needs two powers of two, the smaller first")
    return tuple(p for p in powers if low <= p <= high)


def _numbers(name: str, form: str, spec: list[object], count: tuple[int, int]) -> tuple[int | float, ...]:
    numbers = [n for n in spec if isinstance(n, (int, float)) and not isinstance(n, bool) and abs(n) < 1e18]
    if len(numbers) != len(spec) or not count[0] <= len(spec) <= count[1]:
        raise _error(f"[{name}] must be {form}, with numbers")
    return tuple(numbers)


def _constraints(spec: object, tunables: tuple[Tunable, ...]) -> tuple[expr.Expr, ...]:
    if not isinstance(spec, list) or not all(isinstance(c, str) for c in spec):
        raise _error('`constraints` must be a list of texts, as in ["BLOCK <= 64"]')
    numeric = [t.name for t in tunables if not any(isinstance(c, str) for c in t.choices)]
    try:
        return tuple(expr.parse(c, numeric) for c in spec)
    except expr.ExprError as error:
        raise _error(f"constraints: {error.what}") from None


def _broken(constraint: expr.Expr, values: Mapping[str, Value]) -> str | None:
    numbers = {name: v for name, v in values.items() if not isinstance(v, str)}
    try:
        holds = constraint.value(numbers)
    except expr.ExprError as error:
        return error.what
    shown = ", ".join(f"{n} = {literal(values[n])}" for n in constraint.names)
    return None if holds else f"the constraint `{constraint.text}` does not hold for {shown}"


def _same(a: Value, b: Value) -> bool:
    """Equal and of one type: True is not 1, 1.0 is not 1."""
    return type(a) is type(b) and a == b


# --------------------------------------------------------------------------------------------- writing

_VALUE = re.compile(r"(?P<head>\s*value\s*=\s*)(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s#\"']+)(?P<tail>\s*(?:#.*)?)")


def _value_line(text: str, name: str) -> tuple[int, re.Match[str]] | None:
    """Line number (from 0) and parts of the `value = ...` line below the header [name]."""
    header_line = re.compile(r"\s*\[\s*(?P<name>[A-Za-z_]\w*)\s*\]\s*(?:#.*)?")
    inside = False
    for number, line in enumerate(text.split("\n")):
        head = header_line.fullmatch(line)
        inside = head["name"] == name if head else inside
        match = _VALUE.fullmatch(line) if inside else None
        if match:
            return number, match
    return None


def _defines(name: str, value: Value) -> list[str]:
    if isinstance(value, str):
        choice = [f"#define {name}_{value} 1"] if re.fullmatch(r"\w+", value, re.ASCII) else []
        return [f"#define {name} {_quoted(value)}", *choice]
    return [f"#define {name} {int(value) if isinstance(value, bool) else f'({value!r})' if value < 0 else repr(value)}"]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _shown(choices: tuple[Value, ...]) -> str:
    shown = ", ".join(literal(c) for c in choices[:8])
    return shown if len(choices) <= 8 else f"{shown}, ... {literal(choices[-1])}"


def _unknown(name: str, known: tuple[str, ...]) -> str:
    return f"no tunable `{name}`.{nearest(name, known) or ' Known: ' + (', '.join(known) or 'none')}"


def _error(what: str) -> TaskError:
    return TaskError(what, where=FILE)
