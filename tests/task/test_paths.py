"""Globs: what they match, and what they could ever reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.task.paths import expand, matches, reaches, unfit


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("kernel/**", "kernel/a.c", True),
        ("kernel/**", "kernel/deep/er/a.c", True),
        ("kernel/**", "kernel2/a.c", False),
        ("kernel/*", "kernel/deep/a.c", False),
        ("**/*.c", "a.c", True),
        ("**/*.c", "x/y/a.c", True),
        ("**/a/**/b.c", "x/a/b.c", True),
        ("src/k.c", "src/k.c", True),
        ("src/?.[ch]", "src/k.h", True),
        ("src/?.[ch]", "src/kk.h", False),
        ("*.c", "src/a.c", False),
        ("src", "src/a.c", False),
    ],
)
def test_matches(pattern: str, path: str, expected: bool) -> None:
    assert matches(pattern, path) is expected


@pytest.mark.parametrize(
    ("pattern", "place", "expected"),
    [
        ("**", "t/task.toml", True),
        ("t/*", "t/task.toml", True),
        ("T/TASK.toml", "t/task.toml", True),
        ("t/ta*.toml", "t/task.toml", True),
        ("t/kernel/**", "t/task.toml", False),
        ("*/*.py", "t/task.toml", False),
        ("t/*/*.py", "t/baselines/", True),
        ("t/**/x.py", "t/baselines/", True),
        ("t/baselines/new.c", "t/baselines/", True),
        ("t/BASELINES/**", "t/baselines/", True),
        ("t/*", "t/baselines/", False),
        ("t/kernel/**", "t/baselines/", False),
        ("straße/**", "STRASSE/baselines/", True),
        ("e\u0301/**", "\u00e9/baselines/", True),
    ],
)
def test_reaches(pattern: str, place: str, expected: bool) -> None:
    assert reaches(pattern, place) is expected


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", ".", "./a", "a//b", "a/", "a\\b", "a\nb", ".git/config", "x/.GIT/y"])
def test_unfit(path: str) -> None:
    assert unfit(path)


@pytest.mark.parametrize("path", ["a", "a b/ü.c", "**", "kernel/**", ".github/x", "a/.gitignore"])
def test_fit(path: str) -> None:
    assert unfit(path) is None


def test_expand_lists_files_and_leaves_git_alone(tmp_path: Path) -> None:
    for name in ("k/a.c", "k/deep/b.c", "k/c.h", ".git/x.c", ".keepfast/y.c", "o.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "k" / "outside").symlink_to("/usr/include")
    assert expand(tmp_path, ["**/*.c", "k/c.h"]) == ("k/a.c", "k/c.h", "k/deep/b.c", "o.c")
    assert expand(tmp_path, ["gone/**"]) == ()
    assert not any("outside/" in p for p in expand(tmp_path, ["**"]))


PARTS = st.sampled_from(["a", "b", "baselines", "x.py"])
GLOBS = st.lists(st.sampled_from(["a", "b", "*", "**", "baselines", "x.*", "?"]), min_size=1, max_size=5).map("/".join)


@given(GLOBS, st.lists(PARTS, min_size=1, max_size=4).map("/".join))
def test_whatever_matches_below_a_folder_is_said_to_reach_it(pattern: str, path: str) -> None:
    if matches(pattern, path):
        assert reaches(pattern, path)
        for i, c in enumerate(path):
            assert c != "/" or reaches(pattern, path[: i + 1])
