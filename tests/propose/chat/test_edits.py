"""Edit blocks: what is written is read as the same; what applies is exact; hostile text is an error, never an exception."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.propose.chat.edits import Applied, Block, Edit, Remove, Replace, Whole, apply, parse, render, shown

MARKS = [
    "<<<<<<< FILE a",
    ">>>>>>> END",
    "=======",
    "<<<<<<< SEARCH a",
    ">>>>>>> REPLACE",
    "<<<<<<<< DELETE b",
    ">>>>>>>> END WITHOUT NEWLINE",
]
LINE = st.one_of(st.sampled_from(MARKS), st.text(st.characters(exclude_characters="\n"), max_size=20))
TEXT = st.one_of(st.lists(LINE, max_size=6).map("\n".join), st.text(max_size=60))
LINES = st.lists(LINE, max_size=5).map(lambda lines: "".join(line + "\n" for line in lines))
PATH = st.from_regex(r"[a-z][a-z0-9_./ -]{0,20}[a-z]", fullmatch=True)
EDIT = st.one_of(st.builds(Whole, PATH, TEXT), st.builds(Replace, PATH, LINES, LINES), st.builds(Remove, PATH))
FILES = {"kernel/k.c": b"a\nb\nc\nb\nd\n", "kernel/open.c": b"x\ny", "kernel/dos.c": b"p\r\nq\r\n", "kernel/bytes.bin": b"\xff\xfe"}


def anything(path: str) -> str:
    return ""


def applied(text: str) -> Applied:
    parsed = parse(text)
    assert parsed.errors == ()
    return apply(parsed.blocks, FILES, anything)


def replaced(path: str, search: str, replace: str) -> Applied:
    return apply([Block(1, Replace(path, search, replace))], FILES, anything)


@given(st.lists(EDIT, max_size=4))
@settings(deadline=None)
def test_what_is_rendered_is_parsed(edits: list[Edit]) -> None:
    found = parse(render(edits))
    assert found.edits == tuple(edits)
    assert found.errors == ()
    assert found.prose.strip() == ""


@given(st.lists(EDIT, min_size=1, max_size=2), st.text(max_size=80))
@settings(deadline=None)
def test_blocks_stand_among_prose(edits: list[Edit], prose: str) -> None:
    words = prose.replace("<", "").replace("\r", "")
    found = parse(f"{words}\n{render(edits)}{words}")
    assert found.edits == tuple(edits)


@given(st.one_of(st.text(), st.lists(LINE, max_size=12).map("\n".join), st.lists(LINE, max_size=12).map("\r\n".join)))
@settings(deadline=None)
def test_hostile_text_never_raises(text: str) -> None:
    found = parse(text)
    apply(found.blocks, FILES, anything)


@given(st.binary(max_size=80), st.lists(EDIT, max_size=3))
@settings(deadline=None)
def test_hostile_files_never_raise(data: bytes, edits: list[Edit]) -> None:
    apply([Block(1, e) for e in edits], {e.path: data for e in edits}, anything)


def test_a_surrogate_is_an_error() -> None:
    found = apply([Block(3, Whole("kernel/k.c", "\ud800"))], FILES, anything)
    assert found.errors == ("kernel/k.c (block at line 3): the contents are not UTF-8 text",)


def test_a_search_is_replaced() -> None:
    assert applied("<<<<<<< SEARCH kernel/k.c\na\nb\n=======\nz\n>>>>>>> REPLACE").changed == (("kernel/k.c", b"z\nc\nb\nd\n"),)
    assert applied("<<<<<<< SEARCH kernel/k.c\nd\n=======\n>>>>>>> END\n").changed == (("kernel/k.c", b"a\nb\nc\nb\n"),)


def test_a_file_without_a_last_newline_keeps_it_so() -> None:
    assert replaced("kernel/open.c", "y\n", "z\n").changed == (("kernel/open.c", b"x\nz"),)
    assert replaced("kernel/open.c", "x\n", "w\n").changed == (("kernel/open.c", b"w\ny"),)


def test_line_ends_of_a_file_stay() -> None:
    assert replaced("kernel/dos.c", "q\n", "r\ns\n").changed == (("kernel/dos.c", b"p\r\nr\r\ns\r\n"),)
    assert shown(FILES["kernel/dos.c"]) == "p\nq\n"


def test_an_answer_with_windows_line_ends_is_read() -> None:
    found = parse("<<<<<<< FILE kernel/k.c\r\nq\r\n>>>>>>> END\r\n")
    assert found.edits == (Whole("kernel/k.c", "q\n"),)


def test_edits_follow_one_another_and_new_files_are_made_and_old_ones_go() -> None:
    text = render([Whole("kernel/n.c", "one\n"), Replace("kernel/n.c", "one\n", "two\n"), Remove("kernel/k.c")])
    assert applied(text).changed == (("kernel/k.c", None), ("kernel/n.c", b"two\n"))


def test_what_ends_as_it_was_is_no_change() -> None:
    assert applied(render([Whole("kernel/k.c", "z\n"), Whole("kernel/k.c", "a\nb\nc\nb\nd\n")])) == Applied()


@pytest.mark.parametrize(
    ("path", "search", "error"),
    [
        ("kernel/k.c", "b\n", "found 2 times (lines 2, 4); add lines"),
        ("kernel/k.c", "nothing\n", "the first of its lines that is no line of the file is `nothing`"),
        ("kernel/k.c", "  a\nb\n", "with other white space it is there"),
        ("kernel/k.c", "a\nd\n", "each of its lines is there, but not one after the other"),
        ("kernel/k.c", "", "the search is empty"),
        ("kernel/none.c", "a\n", "there is no such file"),
        ("kernel/bytes.bin", "a\n", "not UTF-8 text, so it can only be written whole"),
    ],
)
def test_errors_are_exact(path: str, search: str, error: str) -> None:
    (found,) = replaced(path, search, "z\n").errors
    assert found.startswith(f"{path} (block at line 1): ")
    assert error in found


def test_a_search_is_whole_lines() -> None:
    assert "not found" in apply([Block(1, Replace("k", "bc\n", ""))], {"k": b"abc\n"}, anything).errors[0]


def test_all_edits_or_none() -> None:
    found = apply(parse(render([Whole("kernel/k.c", "z\n"), Replace("kernel/k.c", "q\n", "")])).blocks, FILES, anything)
    assert found.changed == ()
    assert len(found.errors) == 1


def test_a_forbidden_path_is_said() -> None:
    found = apply([Block(2, Whole("task.toml", "x\n"))], FILES, lambda path: "it is not editable")
    assert found == Applied(errors=("task.toml (block at line 2): it is not editable",))


def test_no_file_below_a_file() -> None:
    found = apply([Block(1, Whole("kernel/k.c/x.c", "x\n"))], FILES, anything)
    assert found.errors == ("kernel/k.c/x.c: a file stands where a folder of this path would be",)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<<<<<<< FILE kernel/k.c\nx\n", "line 1 of your answer (FILE kernel/k.c) is not ended: its last line must be `>>>>>>> END`"),
        ("hm\n<<<<<<< SEARCH k\nx\n>>>>>>> END\n", "line 2 of your answer (SEARCH k) has no line `=======`"),
        ("<<<<<<< SEARCH k\nx\n=======\n=======\n>>>>>>> END\n", "has 2 lines `=======`"),
        ("<<<<<<< SEARCH\nx\n=======\n>>>>>>> END\n", "names no path: write `<<<<<<< SEARCH path`"),
        ("<<<<<<< HEAD\nx\n>>>>>>> END\n", "begins with `<<<<<<< HEAD`; it must be FILE, SEARCH or DELETE"),
        ("<<<<<<< DELETE k\nx\n>>>>>>> END\n", "deletes the file and must be empty"),
        ("<<<<<<< FILE k\nx\n<<<<<<< FILE l\ny\n>>>>>>> END\n", "(FILE k) is not ended before the next begins at line 3"),
    ],
)
def test_blocks_that_are_nearly_right_are_errors(text: str, error: str) -> None:
    assert error in parse(text).errors[0]


def test_fenced_contents_are_refused() -> None:
    found = apply(parse("<<<<<<< FILE kernel/k.c\n```c\nint x;\n```\n>>>>>>> END\n").blocks, FILES, anything)
    assert "wrapped in ```" in found.errors[0]


def test_fences_around_blocks_are_prose() -> None:
    assert parse("```\n<<<<<<< FILE k\nx\n>>>>>>> END\n```\n").edits == (Whole("k", "x\n"),)


def test_large_hostile_text_takes_linear_time() -> None:
    begun = time.monotonic()
    blank = "\n" * 300_000
    text = render([Whole("k", blank), Replace("k", blank[:150_000] + "x\n", "y\n")])
    assert apply(parse(text).blocks, {}, anything).errors != ()
    assert apply(parse(render([Whole("k", blank), Replace("k", "\n" * 150_000, "")])).blocks, {}, anything).errors != ()
    parse("<<<<<<< FILE k\n" * 50_000)
    parse("".join("<" * (7 + n % 500) + " FILE k\n" for n in range(4_000)))
    assert time.monotonic() - begun < 10
