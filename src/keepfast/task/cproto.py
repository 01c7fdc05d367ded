"""The prototype of a C function, found by a plain scan of a text: definitions as they are written, old style included.

Owns reading declarations. Must not know tasks or files. What macros build it sees only when they are resolved before.
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
_ATTRIBUTE = re.compile(
    r"(?:__attribute__|__attribute|__declspec|_Alignas|__asm__|__asm)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[\[.*?\]\]", re.DOTALL
)
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
# `f(a, b) int a; float *b; {`, as C was written before 1989
_OLD_STYLE = re.compile(r"([A-Za-z_]\w*)\s*\(([\w\s,]+)\)((?:[^;(){}=]+;)+)\s*$")
_OLD_STYLE_LENGTH = 4000
_QUALIFIERS = {
    "const", "restrict", "__restrict", "__restrict__", "volatile", "__volatile__", "register", "static", "inline", "__inline",
    "__inline__", "extern", "__extension__", "_Noreturn", "constexpr",
}  # fmt: skip
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
    at: int = 0  # offset of the name in the text


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
            return Prototype(symbol, returns, parameters, at)
    names = defined(text)
    known = f"Defined there: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}" if names else "No function is defined there"
    raise TaskError(f"no function `{symbol}` is defined.{nearest(symbol, names)}", next_step=known)


def aliases_of(text: str) -> dict[str, str]:
    """Type names that `text` gives to numbers and to pointers: {"real": "float", "vector": "real *"}."""
    table: dict[str, str] = {}
    text = blank(text)
    for body in re.findall(r"\btypedef\b([^;{}()\[\]]*);", text):
        base, *more = body.split(",")
        declared = re.fullmatch(r"(.*[\s*])([A-Za-z_]\w*)\s*", base, re.DOTALL)
        if declared:
            pointee = declared[1].rstrip("* \t\n")
            table |= {name.strip("* \t\n"): f"{pointee} {'*' * name.count('*')}" for name in more}
            table[declared[2]] = declared[1]
    table |= dict(re.findall(r"\busing\s+(\w+)\s*=\s*([\w\s*]+);", text))  # C++
    plain = {name: _resolve(name, table) for name in table}
    return {name: " ".join(text.split()) for name, text in table.items() if plain[name].dtype or plain[name].pointers}


def _resolve(name: str, table: Mapping[str, str]) -> CType:
    """The plain type behind a name of a type."""
    pointers, const = 0, False
    for _ in range(16):
        if name in _DTYPES or name not in table:
            break
        words = [w for w in re.findall(r"\w+", table[name].split("*")[0]) if w not in _QUALIFIERS - {"const"}]
        stars = table[name].count("*")
        const = "const" in words or (const and not stars)
        pointers += stars
        name = " ".join(w for w in words if w != "const")
    return CType(name, pointers, const)


def _definitions(clean: str) -> Iterator[tuple[str, str, str, int]]:
    """(name, text before it, text inside the parentheses, offset) of each function body at file level."""
    start = at = last = 0  # after the last ; { or }, and after the last body
    while at < len(clean):
        mark = re.compile(r"[;{}]").search(clean, at)
        if mark is None:
            return
        head = clean[start : mark.start()]
        at = mark.end()
        if mark[0] == "{" and not re.fullmatch(r"\s*(?:extern|namespace(?:\s+\w+)?)\s*", head):
            if head.strip():
                found, offset = _head(head), start
            else:
                offset = max(last, mark.start() - _OLD_STYLE_LENGTH)
                found = _old_style(clean[offset : mark.start()])
            if found:
                yield found[0], found[1], found[2], offset + found[3]
            at = last = _closing(clean, mark.start(), "{}")
        start = at


def _head(head: str) -> tuple[str, str, str, int] | None:
    plain = _ATTRIBUTE.sub(lambda m: " " * len(m[0]), head)
    for match in _CALL.finditer(plain):
        end = _closing(plain, match.end() - 1, "()")
        rest = plain[end:].strip()
        if match[1] not in _NOT_NAMES and plain[: match.start()].strip() and rest in ("", "const", "noexcept"):
            return match[1], plain[: match.start()], plain[match.end() : end - 1], match.start()
    return None


def _old_style(text: str) -> tuple[str, str, str, int] | None:
    """The same for a head whose parameters are declared after it, with these declarations put inside the parentheses."""
    match = _OLD_STYLE.search(text)
    if match is None:
        return None
    declared = dict(pair for line in match[3].split(";") for pair in _declarations(line))
    names = [name.strip() for name in match[2].split(",")]
    before = re.split(r"[;}]", text[: match.start()])[-1]
    return match[1], before, ", ".join(declared.get(name, f"int {name}") for name in names), match.start()


def _declarations(line: str) -> Iterator[tuple[str, str]]:
    """("b", "const float b[4]") and the like, for each name of `const float *a, b[4]`."""
    base = ""
    for part in (p.strip() for p in line.split(",")):
        name = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", part)
        if name:
            yield name[1], f"{base} {part}"
            base = base or part[: name.start()].rstrip("* \t\n")


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
    plain = re.sub(r"\[[^\]]*\]", " ", _ATTRIBUTE.sub(" ", text))
    array = text.count("[") > 1 or ("[" in text and "*" in text)
    pointers = 1 if "[" in text else plain.count("*")
    const = bool(re.search(r"\bconst\b", plain.split("*")[0]))
    words = [w for w in re.findall(r"[A-Za-z_]\w*", plain) if w not in _QUALIFIERS]
    named = len(words) > 1 and words[-1] not in _DTYPES and words[-1] not in _INTEGERS
    types = words[:-1] if named else words
    alias = _resolve(types[0], aliases) if len(types) == 1 else CType(" ".join(types) or "int")
    const = alias.const or (const and not alias.pointers)
    return CType(alias.base, alias.pointers + pointers, const, array or (alias.pointers > 0 and "[" in text)), words[-1] if named else ""
