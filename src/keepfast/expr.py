"""One bounded arithmetic grammar, for limits, tolerances and constraints. Nothing is ever handed to Python's own evaluator.

Grammar, loosest first: or, and, not, one comparison, + -, * / // %, unary + -, ** (small whole exponent), then numbers, names,
parentheses and min(...) max(...) ceil(x) log2(x). Truth is 1 or 0. Text, nesting, exponents and every value on the way are capped.
Must not know what the names mean.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from keepfast.errors import TaskError, nearest

Number = int | float
MAX_LENGTH = 400
MAX_DEPTH = 32
MAX_EXPONENT = 64
MAX_MAGNITUDE = 10**30

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\*\*|//|<=|>=|==|!=|[-+*/%<>(),]))",
    re.ASCII,
)
_LEVEL = {"or": 1, "and": 2, **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 4)}
_LEVEL |= {"+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6, "**": 8}
_NOT, _COMPARISON, _UNARY, _POWER = 3, 4, 7, 8
_FUNCTIONS = {"min": (2, 16), "max": (2, 16), "ceil": (1, 1), "log2": (1, 1)}


class ExprError(TaskError):
    """An expression that does not parse, or has no value. `column` counts from 1."""

    def __init__(self, what: str, text: str, column: int) -> None:
        self.column = column
        super().__init__(f"expression `{text[:MAX_LENGTH]}`, column {column}: {what}")


class _Const(Struct, frozen=True):
    value: Number


class _Name(Struct, frozen=True):
    name: str
    column: int


class _Apply(Struct, frozen=True):
    op: str
    args: tuple[_Node, ...]
    column: int


_Node = _Const | _Name | _Apply


class Expr(Struct, frozen=True):
    """A parsed expression; `names` are those it uses, in order of first use."""

    text: str
    names: tuple[str, ...]
    tree: _Node

    def value(self, env: Mapping[str, Number]) -> Number:
        """The value with `env` for its names. ExprError for division by zero, a missing name, or a value beyond 1e30."""
        return _value(self.tree, env, self.text)


def parse(text: str, names: Collection[str]) -> Expr:
    """Read `text`, which may use `names`. ExprError with the column otherwise."""
    if len(text) > MAX_LENGTH:
        raise ExprError(f"longer than {MAX_LENGTH} characters", text, MAX_LENGTH + 1)
    parser = _Parser(text, names)
    tree = parser.expression(0, 0)
    parser.end()
    return Expr(text, tuple(dict.fromkeys(parser.used)), tree)


# --------------------------------------------------------------------------------------------- reading


class _Token(Struct, frozen=True):
    kind: str  # number | name | op | end
    text: str
    column: int


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise ExprError(f"`{text[at]}` has no meaning here", text, at + 1)
        kind = str(match.lastgroup)
        found.append(_Token(kind, match[kind], match.start(kind) + 1))
        at = match.end()
    return [*found, _Token("end", "", len(text) + 1)]


class _Parser:
    """Precedence climbing over the tokens."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        self.text, self.names = text, names
        self.tokens = _tokens(text)
        self.at = 0
        self.used: list[str] = []

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def fail(self, what: str) -> ExprError:
        return ExprError(what, self.text, self.token.column)

    def take(self) -> _Token:
        token = self.token
        self.at += 1
        return token

    def expect(self, op: str) -> None:
        if self.token.text != op:
            raise self.fail(f"expected `{op}`" + (f", not `{self.token.text}`" if self.token.text else ""))
        self.take()

    def end(self) -> None:
        if self.token.kind != "end":
            raise self.fail(f"expected an operator before `{self.token.text}`")

    def expression(self, floor: int, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise self.fail(f"nested deeper than {MAX_DEPTH}")
        left = self.prefix(floor, depth)
        while (level := _LEVEL.get(self.token.text, 0)) > floor:
            token = self.take()
            # `**` binds to the right and lets a sign follow; all others bind to the left
            right = self.expression(_UNARY - 1 if level == _POWER else level, depth + 1)
            left = _Apply(token.text, (left, right), token.column)
            if level == _COMPARISON and _LEVEL.get(self.token.text) == _COMPARISON:
                raise self.fail("comparisons do not chain: write `a < b and b < c`")
        return left

    def prefix(self, floor: int, depth: int) -> _Node:
        token = self.token
        if token.text in ("-", "+"):
            self.take()
            return _Apply("unary" + token.text, (self.expression(_UNARY - 1, depth + 1),), token.column)
        if token.text == "not":
            if floor >= _NOT:
                raise self.fail("put `not ...` in parentheses")
            self.take()
            return _Apply("not", (self.expression(_NOT - 1, depth + 1),), token.column)
        return self.atom(depth)

    def atom(self, depth: int) -> _Node:
        token = self.token
        if token.kind == "number":
            return self.number(self.take())
        if token.text == "(":
            self.take()
            inside = self.expression(0, depth + 1)
            self.expect(")")
            return inside
        if token.kind != "name" or token.text in _LEVEL:
            raise self.fail("expected a number, a name or `(`" + (f", not `{token.text}`" if token.text else ""))
        self.take()
        return self.call(token, depth) if self.token.text == "(" else self.name(token)

    def number(self, token: _Token) -> _Node:
        value: Number = int(token.text) if token.text.isdigit() and len(token.text) <= 31 else float(token.text)
        if not abs(value) <= MAX_MAGNITUDE:
            raise ExprError("a number beyond 1e30", self.text, token.column)
        return _Const(value)

    def name(self, token: _Token) -> _Node:
        if token.text not in self.names:
            known = sorted(self.names)
            hint = nearest(token.text, known) or f" Known: {', '.join(known) or 'none'}"
            raise ExprError(f"unknown name `{token.text}`.{hint}", self.text, token.column)
        self.used.append(token.text)
        return _Name(token.text, token.column)

    def call(self, token: _Token, depth: int) -> _Node:
        if token.text not in _FUNCTIONS:
            raise ExprError(f"unknown function `{token.text}`. Known: {', '.join(_FUNCTIONS)}", self.text, token.column)
        self.expect("(")
        args = [self.expression(0, depth + 1)]
        while self.token.text == ",":
            self.take()
            args.append(self.expression(0, depth + 1))
        self.expect(")")
        low, high = _FUNCTIONS[token.text]
        if not low <= len(args) <= high:
            raise ExprError(f"`{token.text}` takes {low}{f' to {high}' if high > low else ''} values", self.text, token.column)
        return _Apply(token.text, tuple(args), token.column)


# --------------------------------------------------------------------------------------------- values


def _power(base: Number, exponent: Number) -> Number:
    if not isinstance(exponent, int) or abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"an exponent must be a whole number of at most {MAX_EXPONENT}")
    power: Number = base**exponent
    return power


_OPERATIONS: dict[str, Callable[..., Number]] = {
    "unary-": operator.neg,
    "unary+": operator.pos,
    "not": operator.not_,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": _power,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "log2": math.log2,
}


def _value(node: _Node, env: Mapping[str, Number], text: str) -> Number:
    if isinstance(node, _Const):
        return node.value
    if isinstance(node, _Name):
        if node.name not in env:
            raise ExprError(f"`{node.name}` has no value", text, node.column)
        return _bounded(env[node.name], text, node.column)
    if node.op in ("and", "or"):
        first = bool(_value(node.args[0], env, text))
        return int(first) if first == (node.op == "or") else int(bool(_value(node.args[1], env, text)))
    args = [_value(arg, env, text) for arg in node.args]
    try:
        result = _OPERATIONS[node.op](*args)
    except ZeroDivisionError:
        raise ExprError(f"`{node.op}` divides by zero", text, node.column) from None
    except OverflowError:
        raise ExprError("a value beyond 1e30", text, node.column) from None
    except ValueError as error:
        raise ExprError(str(error) if node.op == "**" else f"`{node.op}` has no value for {args[0]}", text, node.column) from None
    return _bounded(result, text, node.column)


def _bounded(value: Number, text: str, column: int) -> Number:
    value = int(value) if isinstance(value, bool) else value
    if not abs(value) <= MAX_MAGNITUDE:  # also catches nan
        raise ExprError("a value beyond 1e30", text, column)
    return value
