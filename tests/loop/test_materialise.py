"""From a proposal to a candidate: patches, whole files, tunables; and where `root` is elsewhere than the task."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast import model
from keepfast.materialise import Workshop, structure_of, tree_hash, tunables_of
from keepfast.repo import Repo
from tests.loop import kit

TUNABLES = "# mine\n[BLOCK]\nchoices = [16, 32]\nvalue = 16  # by hand\n"


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return kit.repository(tmp_path)


def workshop(where: Path, **more: object) -> tuple[Workshop, model.Candidate]:
    repo = Repo.find(where)
    made = Workshop(kit.task(where, **more), repo)
    return made, made.at(repo.head(), 1)


def candidate(shop: tuple[Workshop, model.Candidate], change: model.Patch | model.Files | model.Tunables) -> model.Candidate:
    made = shop[0].candidate(shop[1], model.Proposal("t", "hand", change), 2)
    assert isinstance(made, model.Candidate), made
    return made


def refused(shop: tuple[Workshop, model.Candidate], change: model.Patch | model.Files | model.Tunables) -> model.Verdict:
    made = shop[0].candidate(shop[1], model.Proposal("t", "hand", change), 2)
    assert isinstance(made, model.Verdict), made
    assert made.rungs[0].name == "guard"
    return made


def paths(made: model.Candidate) -> list[str]:
    return [f.path for f in made.files]


# --------------------------------------------------------------------------------------------- patches and files


def test_the_same_change_as_patch_and_as_files(where: Path) -> None:
    shop = workshop(where)
    a, b = candidate(shop, kit.patch(0, 1)), candidate(shop, kit.kernel(1))
    assert (a.files, a.tree, a.n, a.commit) == (b.files, b.tree, 2, "")
    assert a.tree != shop[1].tree


def test_files_are_added_replaced_and_removed(where: Path) -> None:
    shop = workshop(where)
    files = (("kernel/new.h", b"h"), ("kernel/kernel.c", None), ("kernel/./x/../y.h", b"y"), ("kernel/gone", None))
    made = candidate(shop, model.Files(files))
    assert paths(made) == ["kernel/new.h", "kernel/y.h"]


def test_what_does_not_apply(where: Path) -> None:
    verdict = refused(workshop(where), kit.patch(7, 8))
    assert (verdict.kind, verdict.reason) == (model.Kind.REJECT, model.Reason.DOES_NOT_APPLY)
    assert verdict.detail.startswith("patch failed: ")


def test_files_outside_editable_are_handed_on(where: Path) -> None:
    shop = workshop(where)
    assert paths(candidate(shop, model.Files((("task.toml", b"x"), ("../../../../etc/passwd", b"x"))))) == [
        "../../../../etc/passwd",
        "kernel/kernel.c",
        "task.toml",
    ]
    assert paths(candidate(shop, model.Patch("--- a/task.toml\n+++ b/task.toml\n@@ -1 +1 @@\n-schema = 1\n+schema = 2\n"))) == [
        "kernel/kernel.c",
        "task.toml",
    ]


@pytest.mark.parametrize(
    "change",
    [
        model.Files((("task.toml", None),)),
        model.Patch("--- a/task.toml\n+++ /dev/null\n@@ -1 +0,0 @@\n-schema = 1\n"),
        model.Patch("diff --git a/task.toml b/kernel/t.toml\nsimilarity index 100%\nrename from task.toml\nrename to kernel/t.toml\n"),
    ],
)
def test_removing_what_is_not_editable_is_refused_here(where: Path, change: model.Files | model.Patch) -> None:
    verdict = refused(workshop(where), change)
    assert (verdict.reason, verdict.detail) == (model.Reason.GUARD, "task.toml would be removed, and is not editable")


def test_links_and_binary_patches_are_refused(where: Path) -> None:
    head = "diff --git a/kernel/out b/kernel/out\nnew file mode 120000\n--- /dev/null\n+++ b/kernel/out\n"
    link = f"{head}@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n"
    verdict = refused(workshop(where), model.Patch(link))
    assert (verdict.reason, verdict.detail) == (model.Reason.GUARD, "kernel/out is a symbolic link")
    assert refused(workshop(where), model.Patch("GIT binary patch\n")).reason is model.Reason.DOES_NOT_APPLY


# --------------------------------------------------------------------------------------------- root elsewhere


def test_a_root_above_the_task(where: Path, tmp_path: Path) -> None:
    (tmp_path / "src ü").mkdir()
    (tmp_path / "src ü" / "norm.c").write_text("a\nb\n")
    kit.git(tmp_path, "add", "-A")
    kit.git(tmp_path, "commit", "-qm", "more")
    shop = workshop(where, root=str(tmp_path), editable=("src ü/*.c",), entry_path="src ü/norm.c")
    assert paths(shop[1]) == ["src ü/norm.c"]
    from_root = candidate(shop, model.Patch("--- a/src ü/norm.c\n+++ b/src ü/norm.c\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"))
    from_task = candidate(shop, model.Files((("../../src ü/norm.c", b"a\nc\n"),)))
    assert from_root.files == from_task.files == (model.File("src ü/norm.c", b"a\nc\n"),)
    nowhere = refused(shop, model.Patch("--- a/src ü/other.c\n+++ b/src ü/other.c\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"))
    assert nowhere.detail == "src ü/other.c: No such file or directory"


# --------------------------------------------------------------------------------------------- tunables


def tuned(where: Path, tmp_path: Path, text: str = TUNABLES) -> tuple[Workshop, model.Candidate]:
    (where / "kernel" / "tunables.toml").write_text(text)
    kit.git(tmp_path, "add", "-A")
    kit.git(tmp_path, "commit", "-qm", "tunables")
    return workshop(where, tunables="kernel/tunables.toml")


def test_tunables_change_only_values(where: Path, tmp_path: Path) -> None:
    shop = tuned(where, tmp_path)
    made = candidate(shop, model.Tunables((("BLOCK", 32),)))
    assert made.files[1].data.decode() == TUNABLES.replace("value = 16", "value = 32")
    assert made.files[0] == shop[1].files[0]
    assert tunables_of(shop[0].task, made.files) == (("BLOCK", 32),)
    assert structure_of(shop[0].task, made.files) == structure_of(shop[0].task, shop[1].files)
    assert structure_of(shop[0].task, candidate(shop, kit.kernel(1)).files) != structure_of(shop[0].task, made.files)


@pytest.mark.parametrize(
    ("text", "values", "why"),
    [
        (TUNABLES, (("BLOCK", 17),), "BLOCK = 17 is not one of its declared values"),
        (TUNABLES, (("BLOK", 16),), "BLOCK"),
        ("[BLOCK]\nvalue = 1\n", (("BLOCK", 1),), "exactly one of choices, range, log2"),
        ("not toml", (("BLOCK", 1),), "not TOML"),
    ],
)
def test_bad_tunables(where: Path, tmp_path: Path, text: str, values: tuple[tuple[str, int], ...], why: str) -> None:
    shop = tuned(where, tmp_path, text)
    verdict = refused(shop, model.Tunables(values))
    assert verdict.reason is model.Reason.BAD_TUNABLES
    assert why in verdict.detail
    if text != TUNABLES:
        assert tunables_of(shop[0].task, shop[1].files) == ()


def test_a_task_without_tunables(where: Path) -> None:
    assert refused(workshop(where), model.Tunables((("BLOCK", 1),))).detail == "this task has no tunables.toml"


# --------------------------------------------------------------------------------------------- the tree's hash

FILE = st.builds(model.File, st.text(max_size=5), st.binary(max_size=5), st.booleans(), st.booleans())
FILES = st.lists(FILE, unique_by=lambda f: f.path, max_size=5)


@given(files=FILES, seed=st.randoms())
def test_the_tree_hash_knows_no_order(files: list[model.File], seed: object) -> None:
    mixed = list(files)
    seed.shuffle(mixed)  # type: ignore[attr-defined]
    assert tree_hash(tuple(files)) == tree_hash(tuple(mixed))


@given(a=FILES, b=FILES)
def test_different_files_different_hash(a: list[model.File], b: list[model.File]) -> None:
    assert (tree_hash(tuple(a)) == tree_hash(tuple(b))) == ({f.path: f for f in a} == {f.path: f for f in b})
