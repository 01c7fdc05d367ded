"""The expression grammar: right values, the column of every error, and no text that can do more than arithmetic."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.expr import MAX_DEPTH, MAX_LENGTH, ExprError, parse

NAMES = {"m": 3, "n": 10, "k": 0.5}
Written = tuple[str, Any]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8*m*n + 2*n", 260),
        ("m - 1 - 1", 1),
        ("24 / 4 / 2", 3.0),
        ("2**3**2", 512),
        ("-2**2", -4),
        ("2**-1", 0.5),
        ("(-2)**2", 4),
        ("--m", 3),
        ("7 // 2 * 2 + 7 % 2", 7),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("1e3 + .5 + 2.", 1002.5),
        ("min(m, n, 2) + max(m, n)", 12),
        ("ceil(n / m)", 4),
        ("log2(8)", 3.0),
        ("m < n and n <= 10", 1),
        ("m > n or n != 10", 0),
        ("not m == 3", 0),
        ("not m > 3 and n > 3", 1),
        ("1 or 1 / 0", 1),
        ("0 and 1 / 0", 0),
        ("(m < n) + 1", 2),
    ],
)
def test_values(text: str, value: float) -> None:
    found = parse(text, NAMES).value(NAMES)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "expected a number, a name or `(`"),
        ("8*m*", 5, "expected a number, a name or `(`"),
        ("8*m*+n/", 8, "expected a number"),
        ("m n", 3, "expected an operator before `n`"),
        ("2m", 2, "expected an operator before `m`"),
        ("nn", 1, "unknown name `nn`. Did you mean `n`?"),
        ("width", 1, "unknown name `width`. Known: k, m, n"),
        ("abs(m)", 1, "unknown function `abs`. Known: min, max, ceil, log2"),
        ("min(m)", 1, "`min` takes 2 to 16 values"),
        ("ceil(m, n)", 1, "`ceil` takes 1 values"),
        ("(m", 3, "expected `)`"),
        ("m)", 2, "expected an operator before `)`"),
        ("m & n", 3, "`&` has no meaning here"),
        ("m.real", 2, "`.` has no meaning here"),
        ("m if n else k", 3, "expected an operator before `if`"),
        ("__import__('os')", 12, "`'` has no meaning here"),
        ("m < n < k", 7, "comparisons do not chain"),
        ("1 + not m", 5, "parentheses"),
        ("m ** ", 6, "expected a number"),
        ("1e31", 1, "beyond 1e30"),
        ("9" * 40, 1, "beyond 1e30"),
        ("ｍ", 1, "has no meaning here"),
        ("min", 1, "unknown name `min`"),
    ],
)
def test_what_does_not_parse_says_the_column(text: str, column: int, what: str) -> None:
    with pytest.raises(ExprError) as caught:
        parse(text, NAMES)
    assert what in caught.value.what
    assert caught.value.column == column
    assert f"column {column}" in caught.value.what


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1 / (m - 3)", "`/` divides by zero"),
        ("m % 0", "`%` divides by zero"),
        ("0 ** -1", "`**` divides by zero"),
        ("log2(0 - m)", "`log2` has no value for -3"),
        ("2 ** k", "exponent must be a whole number"),
        ("2 ** 65", "exponent must be a whole number of at most 64"),
        ("10 ** 31", "beyond 1e30"),
        ("1e20 * 1e20", "beyond 1e30"),
        ("1e30 ** 64", "beyond 1e30"),
    ],
)
def test_what_has_no_value(text: str, what: str) -> None:
    with pytest.raises(ExprError, match="column") as caught:
        parse(text, NAMES).value(NAMES)
    assert what in caught.value.what


def test_a_missing_or_wild_name_has_no_value() -> None:
    with pytest.raises(ExprError, match="`n` has no value"):
        parse("m + n", NAMES).value({"m": 1})
    for wild in (math.nan, math.inf, 10**31):
        with pytest.raises(ExprError, match="beyond 1e30"):
            parse("m", NAMES).value({"m": wild})


def test_caps() -> None:
    with pytest.raises(ExprError, match="nested deeper"):
        parse("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), NAMES)
    with pytest.raises(ExprError, match="nested deeper"):
        parse("-" * 100 + "1", NAMES)
    with pytest.raises(ExprError, match="longer than"):
        parse("1+" * MAX_LENGTH + "1", NAMES)
    assert parse("(" * (MAX_DEPTH - 1) + "1" + ")" * (MAX_DEPTH - 1), NAMES).value({}) == 1
    assert parse("1+" * (MAX_LENGTH // 2 - 1) + "1", NAMES).value({}) == MAX_LENGTH // 2


def test_names_in_order_of_use() -> None:
    assert parse("n + m * n", NAMES).names == ("n", "m")


# --------------------------------------------------------------------------------------------- properties


def _pair(text: str, parts: tuple[Written, Written], value: Any) -> Written:
    return text.format(parts[0][0], parts[1][0]), value(parts[0][1], parts[1][1])


def _binary(parts: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    """Fully parenthesised text beside the value that Python computes, for operators that always have one."""
    two = st.tuples(parts, parts)
    return st.one_of(
        two.map(lambda p: _pair("({} + {})", p, lambda a, b: a + b)),
        two.map(lambda p: _pair("({} - {})", p, lambda a, b: a - b)),
        two.map(lambda p: _pair("({}*{})", p, lambda a, b: a * b)),
        two.map(lambda p: _pair("min({}, {})", p, min)),
        two.map(lambda p: _pair("max( {},{} )", p, max)),
        two.map(lambda p: _pair("({} <= {})", p, lambda a, b: int(a <= b))),
        two.map(lambda p: _pair("({} // (1 + max({}, 0)))", p, lambda a, b: a // (1 + max(b, 0)))),
        two.map(lambda p: _pair("({} and {})", p, lambda a, b: int(bool(a) and bool(b)))),
        parts.map(lambda p: (f"(not {p[0]})", int(not p[1]))),
        parts.map(lambda p: (f"(-{p[0]})", -p[1])),
    )


LEAVES: st.SearchStrategy[Written] = st.one_of(st.integers(0, 99).map(lambda i: (str(i), i)), st.sampled_from([("m", 3), ("n", 10)]))


@given(st.recursive(LEAVES, _binary, max_leaves=12))
def test_nested_expressions_mean_what_python_means(written: Written) -> None:
    text, value = written
    if len(text) <= MAX_LENGTH and abs(value) < 10**20:
        assert parse(text, NAMES).value(NAMES) == value


@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(0, 9)), max_size=20))
def test_chains_without_parentheses_bind_like_python(steps: list[tuple[str, int]]) -> None:
    text = "1" + "".join(f" {op} {number}" for op, number in steps)
    total, term = 0, 1  # a sum of products, kept by hand
    for op, number in steps:
        if op == "*":
            term *= number
        else:
            total, term = total + term, number if op == "+" else -number
    assert parse(text, ()).value({}) == total + term


@given(st.text(alphabet="mnk0129.+-*/%()<>=!, andortmix_e2", max_size=60))
def test_any_text_is_a_value_or_an_error_with_a_column(text: str) -> None:
    place: int = 1
    value: float = 0
    try:
        value = parse(text, NAMES).value(NAMES)
    except ExprError as problem:
        place = problem.column
    assert 1 <= place <= len(text) + 1
    assert abs(value) <= 10**30
