"""Entries by name, titles, whole files, and entries that cannot be read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from keepfast.errors import TaskError
from keepfast.model import Files, Patch, Reason
from keepfast.propose.base import Brief
from keepfast.propose.deck import DeckProposer, entries

DIFF = "--- a/kernel/kernel.c\n+++ b/kernel/kernel.c\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deck").mkdir()
    return tmp_path


def brief(make: SimpleNamespace, folder: Path, *history: object) -> Brief:
    return Brief(make.task(folder), make.candidate(), history)  # type: ignore[arg-type]


def put(folder: Path, name: str, text: str = DIFF) -> None:
    (folder / "deck" / name).write_text(text, newline="")


def test_entries_come_by_name_and_each_has_one_turn(make: SimpleNamespace, folder: Path) -> None:
    for name in ("010-later.patch", "002-second.patch", "001-first.patch", "README.md", ".hidden.patch"):
        put(folder, name)
    history: list[object] = []
    sources = []
    while (found := DeckProposer().propose(brief(make, folder, *history))) is not None:
        sources.append(found.source)
        history.append(make.experiment(len(history) + 2, Reason.NO_GAIN, source=found.source, proposer="deck"))
    assert sources == ["deck/001-first.patch", "deck/002-second.patch", "deck/010-later.patch"]


def test_an_entry_that_the_machine_spoiled_is_offered_again(make: SimpleNamespace, folder: Path) -> None:
    put(folder, "001-first.patch")
    void = make.experiment(2, Reason.MACHINE, source="deck/001-first.patch")
    assert DeckProposer().propose(brief(make, folder, void)) is not None
    assert DeckProposer().propose(brief(make, folder, void, void, void)) is None


def test_a_patch_is_handed_on_byte_for_byte(make: SimpleNamespace, folder: Path) -> None:
    text = "one pass for max and sum\n\n" + DIFF.replace("\n", "\r\n") + "ü\n"
    put(folder, "001-first.patch", text)
    found = DeckProposer().propose(brief(make, folder))
    assert found is not None
    assert found.change == Patch(text)
    assert (found.title, found.proposer, found.idea) == ("one pass for max and sum", "deck", None)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (DIFF, "remember rows"),
        ("", "remember rows"),
        ("diff --git a/x b/x\nnot a title\n" + DIFF, "remember rows"),
        ("# keep the last rows\n" + DIFF, "keep the last rows"),
        ("From 0123 Mon Sep 17\nFrom: a <a@b>\nDate: today\nSubject: [PATCH 2/3] unroll by four\n\n---\n" + DIFF, "unroll by four"),
    ],
)
def test_titles(make: SimpleNamespace, folder: Path, text: str, title: str) -> None:
    put(folder, "006-remember-rows.patch", text)
    found = DeckProposer().propose(brief(make, folder))
    assert found is not None
    assert found.title == title


def test_a_folder_is_whole_files(make: SimpleNamespace, folder: Path) -> None:
    inside = folder / "deck" / "003-rewrite" / "kernel"
    inside.mkdir(parents=True)
    (inside / "kernel.c").write_bytes(b"\x00\xff")
    (inside / "a b.h").write_bytes(b"")
    found = DeckProposer().propose(brief(make, folder))
    assert found is not None
    assert found.title == "rewrite"
    assert found.change == Files((("kernel/a b.h", b""), ("kernel/kernel.c", b"\x00\xff")))


def test_no_deck_is_nothing_left(make: SimpleNamespace, tmp_path: Path) -> None:
    assert DeckProposer().propose(brief(make, tmp_path)) is None
    assert entries(make.task(tmp_path)) == ()


def test_what_cannot_be_read_is_said(make: SimpleNamespace, folder: Path) -> None:
    (folder / "deck" / "001-latin.patch").write_bytes(b"caf\xe9\n")
    with pytest.raises(TaskError, match=r"deck/001-latin.patch: not UTF-8 at byte 3"):
        DeckProposer().propose(brief(make, folder))


def test_a_link_is_no_part_of_a_deck(make: SimpleNamespace, folder: Path) -> None:
    (folder / "deck" / "001-files").mkdir()
    (folder / "deck" / "001-files" / "kernel.c").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="not an ordinary file"):
        DeckProposer().propose(brief(make, folder))
