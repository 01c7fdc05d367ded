"""The prototype of a C function, found by a plain scan of its file: no compiler, no preprocessor.

Owns reading declarations. Must not know tasks. It sees definitions as they are written; what macros build is out of its sight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from keepfast.errors import TaskError, nearest

_SKIP = re.compile(
    r"/\*.*?(?:\*/|\Z)|//(?:\\\n|[^\n])*"  # comments
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"  # literals
    r"|^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*",  # preprocessor lines with their continuations
    re.DOTALL | re.MULTILINE,
)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)|__declspec\s*\([^()]*\)|\[\[.*?\]\]|_Alignas\s*\([^()]*\)", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_QUALIFIERS = {"restrict", "__restrict", "__restrict__", "volatile", "register", "static", "inline", "__inline", "__inline__", "extern"}
_NOT_NAMES = {"if", "for", "while", "switch", "return", "sizeof", "else", "do"}
_INTEGERS = {"char", "short", "int", "long", "signed", "unsigned"}
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "size_t": "uint64",
    "ssize_t": "int64",
    "ptrdiff_t": "int64",
    "intptr_t": "int64",
    "uintptr_t": "uint64",
    "bool": "bool",
    "_Bool": "bool",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


class CType(Struct, frozen=True):
    """`base` is one plain type name (`unsigned int`, `float`); an array parameter counts as a pointer."""

    base: str
    pointers: int = 0
    const: bool = False  # what is pointed to may not be written
    array: bool = False  # an array of arrays: passed through void *

    @property
    def text(self) -> str:
        return f"{'const ' if self.const else ''}{self.base}{' ' if self.pointers else ''}{'*' * self.pointers}"

    @property
    def dtype(self) -> str:
        """The name of the element type, or "" when the base is not a number that keepfast knows."""
        words = set(self.base.split())
        if not words <= _INTEGERS:
            return _DTYPES.get(self.base, "")
        size = next((w for w in ("char", "short", "long") if w in words), "int")
        return f"u{_DTYPES[size]}" if "unsigned" in words else _DTYPES[size]


class Parameter(Struct, frozen=True):
    name: str
    type: CType


class Prototype(Struct, frozen=True):
    name: str
    returns: CType
    parameters: tuple[Parameter, ...]
    static: bool
    line: int


def blank(text: str) -> str:
    """`text` with comments, literals and preprocessor lines turned to spaces; every other character keeps its place."""
    return _SKIP.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def defined(text: str) -> tuple[str, ...]:
    """Names of the functions defined at file level, in order."""
    return tuple(dict.fromkeys(name for name, _, _, _ in _definitions(blank(text))))


def find(text: str, symbol: str, aliases: Mapping[str, str] | None = None) -> Prototype:
    """The prototype of the function `symbol` that `text` defines. TaskError when it is not there or cannot be read.

    `aliases` maps names of types to plain types, as `aliases_of` finds them.
    """
    clean = blank(text)
    for name, head, inside, at in _definitions(clean):
        if name == symbol:
            returns = _declared(f"{head} {symbol}", aliases or {})[0]
            parameters = tuple(_parameter(p, aliases or {}, symbol) for p in _split(inside) if p not in ("", "void"))
            static = bool(re.search(r"\b(static|inline|__inline|__inline__)\b", head))
            return Prototype(symbol, returns, parameters, static, clean[:at].count("\n") + 1)
    names = defined(text)
    known = f"Defined there: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}" if names else "No function is defined there"
    raise TaskError(f"no function `{symbol}` is defined.{nearest(symbol, names)}", next_step=known)


def aliases_of(text: str) -> dict[str, str]:
    """Type names that `text` gives to plain types, by `typedef float real;` or `#define real float`."""
    clean = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    found = re.findall(r"^\s*#\s*define\s+([A-Za-z_]\w*)[ \t]+([a-z_][\w \t]*)$", clean, re.MULTILINE)
    found += [(name, base) for base, name in re.findall(r"\btypedef\s+([A-Za-z_][\w\s]*?)\s+([A-Za-z_]\w*)\s*;", clean)]
    table = {name: " ".join(base.split()) for name, base in found}
    return {name: plain for name in table if CType(plain := _resolve(name, table)).dtype}


def _resolve(name: str, table: Mapping[str, str]) -> str:
    for _ in range(8):
        if name not in table:
            break
        name = table[name]
    return name


def _definitions(clean: str) -> Iterator[tuple[str, str, str, int]]:
    """(name, text before it, text inside the parentheses, offset) of each function body at file level."""
    start = at = 0
    while at < len(clean):
        mark = re.compile(r"[;{}]").search(clean, at)
        if mark is None:
            return
        head = clean[start : mark.start()]
        at = mark.end()
        if mark[0] == "{" and not re.fullmatch(r"\s*(?:extern|namespace(?:\s+\w+)?)\s*", head):
            found = _head(head)
            if found:
                name, before, inside, offset = found
                yield name, before, inside, start + offset
            at = _closing(clean, mark.start(), "{}")
        start = at


def _head(head: str) -> tuple[str, str, str, int] | None:
    plain = _ATTRIBUTE.sub(lambda m: " " * len(m[0]), head)
    for match in _CALL.finditer(plain):
        end = _closing(plain, match.end() - 1, "()")
        rest = plain[end:].strip()
        if match[1] not in _NOT_NAMES and plain[: match.start()].strip() and rest in ("", "const", "noexcept"):
            return match[1], plain[: match.start()], plain[match.end() : end - 1], match.start()
    return None


def _closing(text: str, at: int, pair: str) -> int:
    """Offset after the bracket that closes the one at `at`, or the end."""
    depth = 0
    for match in re.compile(f"[{re.escape(pair)}]").finditer(text, at):
        depth += 1 if match[0] == pair[0] else -1
        if depth == 0:
            return match.end()
    return len(text)


def _split(inside: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for c in inside:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return [*parts, part.strip()]


def _parameter(text: str, aliases: Mapping[str, str], symbol: str) -> Parameter:
    ctype, name = _declared(text, aliases)
    if not name:
        what = f"a parameter of `{symbol}` cannot be read: `{' '.join(text.split())}`"
        raise TaskError(what, next_step="This adapter has to be written by hand: docs/tasks.md#adapters")
    return Parameter(name, ctype)


def _declared(text: str, aliases: Mapping[str, str]) -> tuple[CType, str]:
    """Type and name of `const float *restrict x`, `double A[n][m]`, `float (*A)[8]`; the name is "" when there is none to be found."""
    plain = re.sub(r"\[[^\]]*\]", " ", text)
    array = text.count("[") > 1 or ("[" in text and "*" in text)
    pointers = 1 if "[" in text else plain.count("*")
    const = bool(re.search(r"\bconst\b[^*]*\*|\bconst\b[^*]*$", plain.split("*")[0] + ("*" if "*" in plain else "")))
    words = [w for w in re.findall(r"[A-Za-z_]\w*", plain) if w not in _QUALIFIERS and w != "const"]
    named = len(words) > 1 and words[-1] not in _DTYPES and words[-1] not in _INTEGERS
    base = _base(words[:-1] if named else words, aliases)
    return CType(base, pointers, const, array), words[-1] if named else ""


def _base(words: list[str], aliases: Mapping[str, str]) -> str:
    """The type's own words: aliases resolved, and upper-case macros such as EXPORT left out where a type is left."""
    resolved = [_resolve(w, aliases) for w in words]
    tags = ("struct", "union", "enum")
    types = [w for i, w in enumerate(resolved) if len(w) == 1 or not w.isupper() or (i and resolved[i - 1] in tags)]
    return " ".join(types or resolved) or "int"
