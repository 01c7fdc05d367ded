"""tunables.toml: the space it declares, what it refuses, and edits that change nothing but values."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.errors import TaskError
from keepfast.task.tunables import Space, Tunable, Value, header, literal, parse, python, with_values

TEXT = """\
# kept as it is
constraints = ["BLOCK * UNROLL <= 256", "not (VECTOR and BLOCK < 32)"]

[BLOCK]   # how many rows
choices = [
  16, 32,
  64,
]
  value   =  32   # the present one

[UNROLL]
range = [1, 8]
value = 4
[STEP]
range = [0.0, 0.3, 0.1]
value = 0.1
[LANES]
log2 = [4, 32]
value = 8
[LAYOUT]
choices = ["row", "col # not a comment"]
value = "row"
[VECTOR]
choices = [true, false]
value = true
"""


def test_the_space() -> None:
    space = parse(TEXT)
    assert space.names == ("BLOCK", "UNROLL", "STEP", "LANES", "LAYOUT", "VECTOR")
    assert space.values == (("BLOCK", 32), ("UNROLL", 4), ("STEP", 0.1), ("LANES", 8), ("LAYOUT", "row"), ("VECTOR", True))
    assert space.choices("UNROLL") == tuple(range(1, 9))
    assert space.choices("STEP") == (0.0, 0.1, 0.2, 0.3)
    assert space.choices("LANES") == (4, 8, 16, 32)
    assert space.size == 3 * 8 * 4 * 4 * 2 * 2


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, None),
        ({"BLOCK": 16, "UNROLL": 8, "VECTOR": False}, None),
        ([("LAYOUT", "col # not a comment")], None),
        ({"BLOCK": 64, "UNROLL": 5}, "`BLOCK * UNROLL <= 256` does not hold for BLOCK = 64, UNROLL = 5"),
        ({"BLOCK": 16}, "does not hold for VECTOR = true, BLOCK = 16"),
        ({"BLOCK": 48}, "BLOCK = 48 is not one of its declared values (16, 32, 64)"),
        ({"BLOCK": 32.0}, "BLOCK = 32.0 is not one of"),
        ({"UNROLL": True}, "UNROLL = true is not one of"),
        ({"VECTOR": 1}, "VECTOR = 1 is not one of"),
        ({"BLOK": 16}, "no tunable `BLOK`. Did you mean `BLOCK`?"),
    ],
)
def test_valid(values: dict[str, Value], why: str | None) -> None:
    found = parse(TEXT).valid(values)
    assert (found is None) if why is None else (found is not None and why in found)


def test_choices_of_an_unknown_name() -> None:
    with pytest.raises(TaskError, match="no tunable `LANE`"):
        parse(TEXT).choices("LANE")


def test_only_values_change() -> None:
    changed = with_values(TEXT, {"BLOCK": 16, "STEP": 0.3, "LAYOUT": "col # not a comment", "VECTOR": False})
    expected = TEXT.replace("  value   =  32   # the", "  value   =  16   # the").replace("value = 0.1", "value = 0.3")
    expected = expected.replace('value = "row"', 'value = "col # not a comment"').replace("value = true", "value = false")
    assert changed == expected


def test_line_ends_are_kept() -> None:
    text = "[A]\r\nchoices = [1, 2]\r\nvalue = 1 # one\r\n"
    assert with_values(text, {"A": 2}) == text.replace("value = 1", "value = 2")


def test_invalid_values_are_not_written() -> None:
    with pytest.raises(TaskError, match=r"tunables\.toml: BLOCK = 17 is not one of"):
        with_values(TEXT, {"BLOCK": 17})


def test_a_value_that_only_looks_like_one_is_noticed() -> None:
    text = '[A]\nchoices = [1, 2, """\nvalue = 1 # """]\nvalue = 1\n'
    assert parse(text).choices("A") == (1, 2, "value = 1 # ")
    with pytest.raises(TaskError, match="the values cannot be told from the text"):
        with_values(text, {"A": 2})


BAD: list[tuple[str, str]] = [
    ("[A", "not TOML"),
    ("A = 3", "`A` must be a table"),
    ("[A]\nvalue = 1", "exactly one of choices, range, log2"),
    ("[A]\nchoices = [1]", "needs `value`"),
    ("[A]\nchoices = [1]\nrange = [1, 2]\nvalue = 1", "exactly one of"),
    ("[A]\nchoises = [1]\nvalue = 1", "unknown key `choises`. Did you mean `choices`?"),
    ("[A]\nchoices = 1\nvalue = 1", "choices must be a list"),
    ("[A]\nchoices = []\nvalue = 1", "needs 1 to 10000 choices"),
    ("[A]\nchoices = [1, 1]\nvalue = 1", "stands twice"),
    ("[A]\nchoices = [[1]]\nvalue = 1", "may be numbers, texts"),
    ("[A]\nchoices = [nan]\nvalue = 1", "may be numbers, texts"),
    ('[A]\nchoices = ["a\\u001b"]\nvalue = 1', "unprintable"),
    ("[A]\nchoices = [1, 2]\nvalue = 3", "A = 3 is not one of its declared values (1, 2)"),
    ("[A]\nrange = [1]\nvalue = 1", "must be range = [lo, hi] or [lo, hi, step]"),
    ("[A]\nrange = [2, 1]\nvalue = 1", "range needs lo <= hi"),
    ("[A]\nrange = [1, 2, 0]\nvalue = 1", "a step above 0"),
    ("[A]\nrange = [1, 100000]\nvalue = 1", "more than 10000 values"),
    ("[A]\nrange = [1, true]\nvalue = 1", "with numbers"),
    ("[A]\nlog2 = [3, 8]\nvalue = 4", "two powers of two"),
    ("[A]\nlog2 = [8, 4]\nvalue = 4", "the smaller first"),
    ("[int]\nchoices = [1]\nvalue = 1", "is a word of C"),
    ("[keepfast_a]\nchoices = [1]\nvalue = 1", "are taken"),
    ("A = { choices = [1], value = 1 }", "[A] needs a line of its own"),
    ('constraints = ["B < 1"]\n[A]\nchoices = [1]\nvalue = 1', "constraints: expression `B < 1`, column 1: unknown name `B`"),
    ('constraints = ["A < "]\n[A]\nchoices = [1]\nvalue = 1', "column 5"),
    ('constraints = ["A < 1"]\n[A]\nchoices = [1]\nvalue = 1', "the constraint `A < 1` does not hold for A = 1"),
    ('constraints = ["1 // (A - 1)"]\n[A]\nchoices = [1]\nvalue = 1', "divides by zero"),
    ('constraints = ["A == 1"]\n[A]\nchoices = ["a"]\nvalue = "a"', "unknown name `A`"),
    ("constraints = 'A'", "must be a list of texts"),
    ("\n".join(f"[A{i}]\nchoices = [1]\nvalue = 1" for i in range(65)), "more than 64 tunables"),
]


@pytest.mark.parametrize(("text", "what"), BAD, ids=[what for _, what in BAD])
def test_what_is_refused(text: str, what: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse(text)
    assert what in caught.value.what
    assert caught.value.where == "tunables.toml"


def imported(space: Space) -> dict[str, object]:
    values: dict[str, object] = {}
    exec(python(space), values)
    return values


def test_constants_of_python() -> None:
    space = parse(TEXT)
    found = imported(space)
    for name, value in space.values:
        assert found[name] == value
        assert type(found[name]) is type(value)
    assert "changes here are lost" in str(found["__doc__"])
    assert python(Space(())).count("=") == 0


@given(st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()))
def test_every_value_is_that_value_in_python(value: Value) -> None:
    assert repr(imported(Space((Tunable("A", (value,), value),)))["A"]) == repr(value)


def test_header() -> None:
    text = header(parse(TEXT))
    for line in ("#define BLOCK 32", "#define STEP 0.1", '#define LAYOUT "row"', "#define LAYOUT_row 1", "#define VECTOR 1"):
        assert line in text.split("\n")
    assert "#define A (-3)" in header(parse("[A]\nchoices = [-3]\nvalue = -3"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_header_compiles(tmp_path: Path) -> None:
    (tmp_path / "t.h").write_text(header(parse(TEXT)))
    code = '#include "t.h"\n#include "t.h"\n#if LAYOUT_row && BLOCK == 32 && VECTOR\nconst char *x = LAYOUT;\n#else\n#error\n#endif\n'
    (tmp_path / "t.c").write_text(code)
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-c", "t.c", "-o", "t.o"], cwd=tmp_path, check=True)


VALUES = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=8),
)


@given(st.lists(VALUES, min_size=1, max_size=5, unique_by=lambda v: (type(v), v)), st.data())
def test_every_choice_can_be_written_and_read_back(choices: list[Value], data: st.DataObject) -> None:
    text = f"# top\n[A]\nchoices = [{', '.join(map(literal, choices))}]\nvalue = {literal(choices[0])} # why\n"
    wanted = data.draw(st.sampled_from(choices))
    changed = with_values(text, {"A": wanted})
    assert parse(changed).values == (("A", wanted),)
    assert type(dict(parse(changed).values)["A"]) is type(wanted)
    assert changed.split("value")[0] == text.split("value")[0]
    assert changed.endswith(" # why\n")
