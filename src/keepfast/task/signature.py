"""The calling contract as one string: a reader for the torch operator schema.

Owns the grammar and its error messages (column, caret, example). Must not know files, dtypes or C.

    signature = [namespace "::"] name ["." overload] "(" [argument {"," argument}] ")" "->" returns
    argument  = type name ["=" default]    or the marker "*"
    type      = "Tensor" ["(" set ["!"] ")"] ["?"]   or   ("int" | "SymInt" | "float" | "bool" | "str") ["?"]
    returns   = "()"   or   result   or   "(" result {"," result} ")"
    result    = "Tensor" ["(" set ["!"] ")"] [name]
"""

from __future__ import annotations

import keyword
import re

from keepfast.errors import TaskError, nearest
from keepfast.model import Arg, Return, Signature

EXAMPLE = "f(Tensor x, Tensor? bias, Tensor(a!) y, float eps=1e-6) -> Tensor"
MAX_LENGTH = 2000
MAX_ARGS = 64

_SCALARS = {"int": "int", "SymInt": "int", "float": "float", "bool": "bool", "str": "str"}
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_TEXT = re.compile(r"\"([^\"\\\n]*)\"|'([^'\\\n]*)'")
# Names become C and Python parameters, and C++ when the entry is a .cpp file.
_C_WORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr const_cast continue
decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
restrict return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq size_t int8_t int16_t
int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t NULL main"""


class SignatureError(TaskError):
    """A signature that does not parse. `column` counts from 1."""

    def __init__(self, what: str, text: str, column: int) -> None:
        self.column = column
        start = max(0, column - 60)
        shown = "".join(c if c.isprintable() else " " for c in text[start : start + 90])
        caret = " " * (column - 1 - start) + "^"
        super().__init__(f"signature, column {column}: {what}", next_step=f"{shown}\n  {caret}\n  Example: {EXAMPLE}")


def reserved(name: str) -> str | None:
    """Why `name` cannot name an argument, an output, an axis or a tunable; None when it can."""
    if _NAME.fullmatch(name) is None:
        return f"`{name}` is not a plain name (letters, digits, `_`)"
    if name == "stream":
        return "`stream` is the last argument of every kernel"
    if name in _C_WORDS.split() or keyword.iskeyword(name):
        return f"`{name}` is a word of C, C++ or Python"
    if name.lower().startswith("keepfast"):
        return "names that begin with `keepfast` are taken"
    return None


def parse(text: str) -> Signature:
    """Read an operator schema; SignatureError shows the column and an example."""
    reader = _Reader(text)
    if len(text) > MAX_LENGTH:
        raise reader.fail(f"longer than {MAX_LENGTH} characters", MAX_LENGTH)
    name = _operator_name(reader)
    args = _arguments(reader)
    reader.expect("->", "the arguments; a kernel without outputs ends in `-> ()`")
    returns = _named(reader, args, _returns(reader))
    reader.skip()
    if reader.at < len(text):
        raise reader.fail("nothing may follow the returns")
    signature = Signature(name, args, returns, text)
    if not signature.results:
        raise reader.fail("nothing to compare: return a `Tensor`, or mark what is written as `Tensor(a!)`")
    return signature


class _Reader:
    """A place in the text. `at` counts from 0."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def fail(self, what: str, at: int | None = None) -> SignatureError:
        return SignatureError(what, self.text, (self.at if at is None else at) + 1)

    def sees(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.at)

    def accept(self, token: str) -> bool:
        if not self.sees(token):
            return False
        self.at += len(token)
        return True

    def expect(self, token: str, after: str) -> None:
        if not self.accept(token):
            raise self.fail(f"expected `{token}` after {after}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def word(self, what: str) -> str:
        found = self.match(_NAME)
        if found is None:
            raise self.fail(f"expected {what}")
        return found[0]

    def free_name(self, what: str) -> str:
        """A name that C and Python can use."""
        name = self.word(what)
        why = reserved(name)
        if why:
            raise self.fail(why, self.at - len(name))
        return name


def _operator_name(reader: _Reader) -> str:
    name = reader.word("the name of the operator")
    if reader.accept("::"):
        name = reader.word("a name after `::`")
    if reader.accept("."):
        reader.word("an overload name after `.`")
    return name


def _arguments(reader: _Reader) -> tuple[Arg, ...]:
    reader.expect("(", "the name")
    found: list[Arg] = []
    marked = False
    if reader.accept(")"):
        return ()
    while True:
        if reader.accept("*"):
            if marked:
                raise reader.fail("`*` may stand once", reader.at - 1)
            marked = True
            reader.expect(",", "`*`")
        found.append(_argument(reader, found))
        if reader.accept(")"):
            return tuple(found)
        if not reader.accept(","):
            raise reader.fail(f"expected `,` or `)` after `{found[-1].name}`")


def _argument(reader: _Reader, earlier: list[Arg]) -> Arg:
    kind = _type_word(reader)
    after_type = reader.at
    alias, written = _alias(reader) if kind == "tensor" else ("", False)
    optional = reader.accept("?")
    _refuse_list(reader)
    if kind == "tensor" and optional and reader.sees("("):
        raise reader.fail("the alias set comes before the `?`: `Tensor(a!)?`")
    name = reader.free_name("a name after the type")
    if name in [a.name for a in earlier]:
        raise reader.fail(f"`{name}` is named twice", reader.at - len(name))
    if alias and alias in [a.alias for a in earlier]:
        raise reader.fail(f"alias set `{alias}` belongs to an earlier argument: give each its own letter", after_type + 1)
    if len(earlier) == MAX_ARGS:
        raise reader.fail(f"more than {MAX_ARGS} arguments")
    has_default = reader.accept("=")
    default = _default(reader, kind, optional) if has_default else None
    return Arg(name, kind, optional, alias, written, default, has_default)


def _type_word(reader: _Reader) -> str:
    known = ("Tensor", *_SCALARS)
    word = reader.word(f"a type ({', '.join(known)})")
    if word == "Tensor":
        return "tensor"
    if word not in _SCALARS:
        hint = " Write `float` or `int`." if word == "Scalar" else nearest(word, known)
        raise reader.fail(f"keepfast has no type `{word}`.{hint} Types: {', '.join(known)}", reader.at - len(word))
    return _SCALARS[word]


def _refuse_list(reader: _Reader) -> None:
    if reader.sees("["):
        raise reader.fail("lists are not supported: name each element as an argument of its own")


def _alias(reader: _Reader) -> tuple[str, bool]:
    if not reader.accept("("):
        return "", False
    alias = reader.word("an alias set such as `(a!)`")
    written = reader.accept("!")
    if not reader.accept(")"):
        raise reader.fail(f"expected `)` after alias set `{alias}`: one letter and perhaps `!`, as in `Tensor({alias}!)`")
    return alias, written


def _default(reader: _Reader, kind: str, optional: bool) -> bool | int | float | str | None:
    reader.skip()
    start = reader.at
    text = reader.match(_TEXT)
    if text is not None:
        return _fitting(reader, start, kind, text[1] if text[1] is not None else text[2])
    word = reader.match(_NAME)
    if word is not None:
        return _word_default(reader, word[0], kind, optional)
    number = reader.match(_NUMBER)
    if number is None:
        raise reader.fail("expected a default value after `=`")
    whole = number[0].lstrip("+-").isdigit()
    value: int | float = int(number[0]) if whole and kind != "float" else float(number[0])
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise reader.fail("a default beyond 64 bits", start)
    return _fitting(reader, start, kind, value)


def _word_default(reader: _Reader, word: str, kind: str, optional: bool) -> bool | float | None:
    start = reader.at - len(word)
    if word == "None":
        if not optional:
            raise reader.fail("only an optional argument (`?`) may be None", start)
        return None
    if word in ("inf", "nan") and kind == "float":
        return float(word)
    if word.lower() not in ("true", "false"):
        raise reader.fail(f"`{word}` is not a default value", start)
    value = _fitting(reader, start, kind, word.lower() == "true")
    return bool(value)


def _fitting(reader: _Reader, start: int, kind: str, value: bool | int | float | str) -> bool | int | float | str:
    wanted = {"int": int, "float": float, "bool": bool, "str": str}.get(kind)
    if wanted is None:
        raise reader.fail("a tensor has no default but None", start)
    if type(value) is not wanted:
        raise reader.fail(f"a default of type {kind} is expected here", start)
    return value


def _returns(reader: _Reader) -> list[tuple[str, str, bool, int]]:
    """(name or "", alias, written, column from 0) of each returned tensor."""
    if not reader.accept("("):
        return [_result(reader)]
    if reader.accept(")"):
        return []
    found = [_result(reader)]
    while reader.accept(","):
        found.append(_result(reader))
    reader.expect(")", "the returns")
    return found


def _result(reader: _Reader) -> tuple[str, str, bool, int]:
    reader.skip()
    start = reader.at
    word = reader.word("`Tensor`, `(Tensor, Tensor)` or `()`")
    if word != "Tensor":
        raise reader.fail(f"a kernel returns tensors; `{word}` cannot be returned. A scalar is a `Tensor` of one element", start)
    alias, written = _alias(reader)
    if reader.sees("?"):
        raise reader.fail("a returned tensor cannot be optional")
    _refuse_list(reader)
    named = reader.match(re.compile(r"(?=[A-Za-z_])", re.ASCII)) is not None
    return (reader.free_name("a name") if named else ""), alias, written, start


def _named(reader: _Reader, args: tuple[Arg, ...], found: list[tuple[str, str, bool, int]]) -> tuple[Return, ...]:
    """Give unnamed outputs their names, and check alias sets and names against the arguments."""
    fresh = sum(1 for _, alias, _, _ in found if not alias)
    taken = {a.name for a in args}
    owners = {a.alias: a for a in args if a.alias}
    returns: list[Return] = []
    for name, alias, written, column in found:
        if alias:
            owner = owners.get(alias)
            if owner is None or owner.written != written:
                mark = f"{alias}{'!' if written else ''}"
                raise reader.fail(f"no argument is `Tensor({mark})`", column)
            returns.append(Return(name or owner.name, alias))
            continue
        number = sum(1 for r in returns if not r.alias)
        name = name or ("out" if fresh == 1 else f"out{number}")
        if name in taken:
            raise reader.fail(f"two tensors are called `{name}`: give the output its own name, as in `-> Tensor y`", column)
        taken.add(name)
        returns.append(Return(name))
    return tuple(returns)
