"""What an agent is given, and what is taken back from what it left."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from keepfast.errors import UsageError
from keepfast.model import File
from keepfast.propose.agent import Page
from keepfast.propose.command import workspace
from tests.propose.command.conftest import job


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "workspace"
    workspace.lay_out(folder, job())
    return folder


def tree(folder: Path) -> dict[str, int]:
    return {p.relative_to(folder).as_posix(): stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*") if p.is_file()}


def test_it_holds_the_job_and_nothing_else(place: Path) -> None:
    assert tree(place) == {
        "kernel/kernel.c": 0o644, "kernel/build.sh": 0o755, "reference.py": 0o444, "BRIEF.md": 0o444, "context/card.md": 0o444,
    }  # fmt: skip
    assert (place / "BRIEF.md").read_text() == "Replace OLD by NEW."
    assert workspace.read_back(place, job()) == workspace.Found()


def test_it_is_made_anew(place: Path) -> None:
    (place / "kernel" / "left.c").write_text("x")
    (place / "closed" / "deep").mkdir(parents=True)
    (place / "closed").chmod(0)
    fixed = workspace.lay_out(place, job())
    assert "kernel/left.c" not in tree(place)
    assert fixed == tuple(str(place / name) for name in ("BRIEF.md", "context", "reference.py"))
    assert [p.name for p in place.parent.iterdir()] == ["workspace"]


def test_a_link_in_its_place_is_not_followed(place: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("keep me")
    workspace.clear(place)
    place.symlink_to(other)
    assert workspace.read_back(place, job()).offence == "its workspace is gone"
    workspace.lay_out(place, job())
    assert not place.is_symlink()
    assert (other / "mine.txt").read_text() == "keep me"


def test_a_folder_deeper_than_a_path_can_be_is_moved_away(place: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(place)
        for _ in range(1200):
            os.mkdir("deeper")
            os.chdir("deeper")
    finally:
        os.fchdir(here)
        os.close(here)
    assert workspace.read_back(place, job()).changed == ()
    workspace.lay_out(place, job())
    assert not (place / "deeper").exists()
    for left in place.parent.glob("workspace.*"):
        subprocess.run(["rm", "-rf", left], check=True)  # pytest could not remove it either


@pytest.mark.parametrize("path", ["BRIEF.md", "context/card.md", "../out.c", "/etc/x", ".git/config"])
def test_a_file_that_cannot_lie_there(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match="workspace"):
        workspace.lay_out(tmp_path / "w", job(files=(File(path, b""),)))


def test_a_page_stays_below_context(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot lie in an agent's workspace"):
        workspace.lay_out(tmp_path / "w", job(pages=(Page("../../x.md", ""),)))


def test_only_editable_files_are_read_back(place: Path) -> None:
    (place / "kernel" / "kernel.c").write_text("new")
    (place / "kernel" / "sub").mkdir()
    (place / "kernel" / "sub" / "more.h").write_text("more")
    (place / "kernel" / "build.sh").unlink()
    (place / "outside.c").write_text("no")
    (place / "reference.py").chmod(0o644)
    (place / "reference.py").write_text("faked")
    (place / "BRIEF.md").unlink()
    found = workspace.read_back(place, job())
    assert found.changed == (("kernel/build.sh", None), ("kernel/kernel.c", b"new"), ("kernel/sub/more.h", b"more"))
    assert not found.offence


def test_globs_decide(place: Path) -> None:
    (place / "kernel" / "kernel.c").write_text("new")
    (place / "kernel" / "other.c").write_text("new")
    only = job(files=job().files[:1], editable=("kernel/kernel.c",))
    assert workspace.read_back(place, only).changed == (("kernel/kernel.c", b"new"),)


def test_a_new_link_is_left_out(place: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (place / "kernel" / "link.c").symlink_to(secret)
    (place / "kernel" / "folder").symlink_to(tmp_path)
    os.mkfifo(place / "kernel" / "pipe")
    found = workspace.read_back(place, job())
    assert found.changed == ()
    assert [words.split()[0] for words in found.left_out] == ["'kernel/folder'", "'kernel/link.c'", "'kernel/pipe'"]


@pytest.mark.parametrize("what", ["kernel/kernel.c", "kernel"])
def test_a_link_in_place_of_a_file_is_an_offence(place: Path, tmp_path: Path, what: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (place / what).rename(tmp_path / "moved")
    (place / what).symlink_to(tmp_path / "elsewhere")
    found = workspace.read_back(place, job())
    assert found.offence == f"{what!r} is a link, no regular file, or closed to reading"
    assert found.changed == ()


def test_what_a_build_leaves_is_left_out(place: Path) -> None:
    (place / "kernel" / "a.out").write_bytes(b"\x7fELF\0" + bytes(3 << 20))
    (place / "kernel" / "kernel.c").write_bytes(b"new")
    found = workspace.read_back(place, job())
    assert found.changed == (("kernel/kernel.c", b"new"),)
    assert found.left_out == ("'kernel/a.out' is binary",)


def test_sizes(place: Path) -> None:
    (place / "kernel" / "new.c").write_bytes(b"x" * (2 << 20))
    assert workspace.read_back(place, job()).changed == (("kernel/new.c", b"x" * (2 << 20)),)
    (place / "kernel" / "new.c").write_bytes(b"x" * ((2 << 20) + 1))
    assert workspace.read_back(place, job()).left_out == ("'kernel/new.c' is larger than 2 MiB",)
    (place / "kernel" / "kernel.c").write_bytes(b"x" * ((2 << 20) + 1))
    assert workspace.read_back(place, job()).offence == "'kernel/kernel.c' is larger than 2 MiB"


def test_no_more_than_a_candidate_may_have(place: Path) -> None:
    for i in range(501):
        (place / "kernel" / f"{i}.c").write_text("x")
    assert "more than 500 files or 16 MiB" in workspace.read_back(place, job()).offence
    workspace.lay_out(place, job())
    for i in range(9):
        (place / "kernel" / f"{i}.c").write_bytes(b"x" * (2 << 20))
    assert "more than 500 files or 16 MiB" in workspace.read_back(place, job()).offence


def test_names_that_no_ledger_can_hold(place: Path) -> None:
    Path(os.fsdecode(os.fsencode(place) + b"/kernel/\xff.c")).write_text("x")
    (place / "kernel" / "two\nlines.c").write_text("x")
    found = workspace.read_back(place, job())
    assert found.changed == ()
    assert len(found.left_out) == 2
    assert all(words.isprintable() for words in found.left_out)


def test_a_forest_of_files_ends_the_search(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MAX_ENTRIES", 20)
    for i in range(30):
        (place / "kernel" / f"{i}.o").write_bytes(b"\0")
    assert workspace.read_back(place, job()).offence == "more than 20 files lie where editable files are"
