"""Patches are applied by git in a folder of their own, to files in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.model import File
from keepfast.repo import apply
from keepfast.repo.patch import strip_of, touched

KERNEL = File("kernel/kernel.c", b"one\ntwo\nthree\n", executable=True)
HEAD = "--- a/kernel/kernel.c\n+++ b/kernel/kernel.c\n"
TWO = f"{HEAD}@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


def test_applies_and_keeps_the_rest() -> None:
    other = File("kernel/a b é.h", b"\xff\x00")
    assert apply(TWO, (other, KERNEL)) == (other, File("kernel/kernel.c", b"one\n2\nthree\n", executable=True))


def test_prose_above_the_diff_is_no_matter() -> None:
    made = apply(f"Use two lanes\n\nBecause.\n---\n kernel.c | 2 +-\n\n{TWO}", (KERNEL,))
    assert not isinstance(made, str)
    assert b"2\n" in made[0].data


def test_below_a_directory_and_without_prefixes() -> None:
    diff = "--- kernel.c\n+++ kernel.c\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    made = apply(diff, (KERNEL,), strip_of(diff), "kernel")
    assert not isinstance(made, str)
    assert made[0].data == b"one\n2\nthree\n"
    assert (strip_of(diff), strip_of(TWO)) == (0, 1)


def test_new_deleted_and_renamed_files() -> None:
    diff = (
        "diff --git a/kernel/new.h b/kernel/new.h\nnew file mode 100644\n--- /dev/null\n+++ b/kernel/new.h\n@@ -0,0 +1 @@\n+new\n"
        "diff --git a/kernel/old.h b/kernel/old.h\ndeleted file mode 100644\n--- a/kernel/old.h\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
        "diff --git a/kernel/kernel.c b/kernel/moved.c\nsimilarity index 100%\nrename from kernel/kernel.c\nrename to kernel/moved.c\n"
    )
    made = apply(diff, (KERNEL, File("kernel/old.h", b"old\n")))
    assert not isinstance(made, str)
    assert [f.path for f in made] == ["kernel/moved.c", "kernel/new.h"]
    assert touched(diff, 1) == ("kernel/new.h", "kernel/old.h", "kernel/kernel.c", "kernel/moved.c")


@pytest.mark.parametrize(
    ("diff", "why"),
    [
        (TWO.replace("one", "uno"), "patch failed: kernel/kernel.c:1; kernel/kernel.c: patch does not apply"),
        (TWO.replace("kernel.c", "other.c"), "kernel/other.c: No such file or directory"),
        (TWO.replace("@@ -1,3", "@@ -1,9"), "corrupt patch at line 8"),
        ("nothing here", "No valid patches in input"),
        (TWO.replace("a/kernel/", "a/../../").replace("b/kernel/", "b/../../"), "../../kernel.c: No such file"),
        ("--- /dev/null\n+++ b/../../new.c\n@@ -0,0 +1 @@\n+x\n", "invalid path '../../new.c'"),
        ("GIT binary patch\nliteral 1000000000\n", "binary patches are not taken"),
    ],
)
def test_why_it_does_not_apply(diff: str, why: str) -> None:
    made = apply(diff, (KERNEL,))
    assert isinstance(made, str)
    assert why in made
    assert "\n" not in made


def test_a_link_is_reported_and_never_followed(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.mkdir()
    head = "diff --git a/kernel/out b/kernel/out\nnew file mode 120000\n--- /dev/null\n+++ b/kernel/out\n"
    link = f"{head}@@ -0,0 +1 @@\n+{aim}\n\\ No newline at end of file\n"
    made = apply(link, (KERNEL,))
    assert not isinstance(made, str)
    assert made[1] == File("kernel/out", str(aim).encode(), link=True)
    below = "diff --git a/kernel/out/x b/kernel/out/x\nnew file mode 100644\n--- /dev/null\n+++ b/kernel/out/x\n@@ -0,0 +1 @@\n+x\n"
    assert "beyond a symbolic link" in str(apply(link + below, (KERNEL,)))
    assert not list(aim.iterdir())


def test_what_git_is_configured_to_do_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[core]\nautocrlf = true\n[apply]\nwhitespace = fix\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    made = apply(TWO.replace("+2", "+2   "), (KERNEL,))
    assert not isinstance(made, str)
    assert made[0].data == b"one\n2   \nthree\n"


def test_a_temporary_folder_inside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    from tests.loop.kit import repository

    repository(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = apply(TWO, (KERNEL,))
    assert not isinstance(made, str)
    assert made[0].data == b"one\n2\nthree\n"
