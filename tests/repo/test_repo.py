"""Git: finding the repository, reading, storing candidates, the branch; and never touching what is the user's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.errors import LedgerError, MachineError, UsageError
from keepfast.model import File
from keepfast.repo import Change, Keep, Repo
from keepfast.repo.stream import storable
from tests.loop.kit import git, repository


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return repository(tmp_path / "a repo")


@pytest.fixture
def top(where: Path) -> Path:
    return where.parent.parent


@pytest.fixture
def repo(where: Path) -> Repo:
    return Repo.find(where)


# --------------------------------------------------------------------------------------------- finding


def test_found_from_any_subfolder(where: Path, top: Path) -> None:
    for place in (top, where, where / "kernel", where / "kernel" / "kernel.c", where / "not" / "there"):
        found = Repo.find(place)
        assert (found.root, found.state) == (top, top / ".keepfast")
    assert not (top / ".keepfast").exists()


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not inside a git repository\n  git init"):
        Repo.find(tmp_path)


def test_an_unborn_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(UsageError, match="no commit yet\n  git add -A"):
        Repo.find(tmp_path)
    assert git(tmp_path, "for-each-ref") == ""


def test_a_bare_repository(tmp_path: Path, top: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(top), "bare.git")
    with pytest.raises(UsageError, match="a bare repository has no files"):
        Repo.find(tmp_path / "bare.git")
    with pytest.raises(UsageError, match="a bare repository has no files"):
        Repo.find(top / ".git")


def test_a_linked_work_tree_shares_the_state(tmp_path: Path, top: Path) -> None:
    git(top, "worktree", "add", "-q", str(tmp_path / "linked"))
    found = Repo.find(tmp_path / "linked" / "tasks")
    assert (found.root, found.state) == (tmp_path / "linked", top / ".keepfast")
    found.ensure_state()
    assert git(top, "status", "--short") == ""


def test_a_submodule_is_a_repository_of_its_own(tmp_path: Path, top: Path) -> None:
    outer = tmp_path / "outer"
    repository(outer)
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(top), "vendor/inner")
    found = Repo.find(outer / "vendor" / "inner" / "tasks")
    assert (found.root, found.state) == (outer / "vendor/inner", outer / "vendor/inner/.keepfast")
    found.ensure_state()
    assert git(outer / "vendor/inner", "status", "--short") == ""


def test_no_git(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MachineError, match="git is not installed"):
        Repo.find(where)


def test_a_caller_in_a_hook_does_not_mislead(where: Path, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.parent.parent / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent/index")
    assert Repo.find(where).root == top


def test_state_is_ignored_once(repo: Repo, top: Path) -> None:
    exclude = top / ".git" / "info" / "exclude"
    exclude.write_text("*.o")  # no newline at its end
    for _ in range(2):
        assert repo.ensure_state() == top / ".keepfast"
    assert exclude.read_text() == "*.o\n/.keepfast/\n"
    (top / ".keepfast" / "ledger.db").touch()
    assert git(top, "status", "--short") == ""


def test_outside_the_repository(repo: Repo, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is outside the repository"):
        repo.relative(tmp_path / "elsewhere")


# --------------------------------------------------------------------------------------------- reading


def test_files_by_glob_and_root(repo: Repo, where: Path, top: Path) -> None:
    (where / "kernel" / "deep").mkdir()
    (where / "kernel" / "deep" / "a b é\n\"'.h").write_bytes(b"\x00\xff")
    (where / "kernel" / "run.sh").write_text("#!/bin/sh\n")
    (where / "kernel" / "run.sh").chmod(0o755)
    (where / "kernel" / "link.c").symlink_to("/etc/passwd")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "more")
    found = repo.files("HEAD", ["kernel/**"], where)
    assert [(f.path, f.executable) for f in found] == [
        ("kernel/deep/a b é\n\"'.h", False),
        ("kernel/kernel.c", False),
        ("kernel/run.sh", True),
    ]
    assert found[0].data == b"\x00\xff"
    assert [f.path for f in repo.files("HEAD", ["kernel/*.c"], where)] == ["kernel/kernel.c"]
    kernel = "tasks/soft max é/kernel/kernel.c"
    assert [f.path for f in repo.files("HEAD", ["tasks/soft max é/kernel/*.c", "READ*"], top)] == ["README", kernel]
    assert repo.files("HEAD", ["nothing/**"], where) == ()
    assert [f.path for f in repo.read("HEAD", {"README", "no", "tasks/soft max é/kernel/link.c"})] == ["README"]


def test_a_submodule_in_the_tree_is_left_alone(tmp_path: Path, top: Path, where: Path, repo: Repo) -> None:
    inner = repository(tmp_path / "inner")
    git(top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.parent.parent), str(where / "kernel" / "lib"))
    git(top, "commit", "-qm", "submodule")
    before = repo.files("HEAD", ["kernel/**"], where)
    assert [f.path for f in before] == ["kernel/kernel.c"]
    (where / "kernel" / "lib" / "README").write_text("dirty\n")
    assert repo.snapshot([where], "r-1") == (repo.head(), ())
    commit = repo.commit("r-1", 2, repo.head(), Change(str(where), before, (File("kernel/kernel.c", b"x"),)), "m")
    assert "160000 commit" in git(top, "ls-tree", "-r", commit)


def test_diff_and_commits_that_are_gone(repo: Repo, where: Path) -> None:
    before = repo.files("HEAD", ["kernel/**"], where)
    commit = repo.commit("r-1", 2, repo.head(), Change(str(where), before, (File("kernel/kernel.c", b"int x;\n"),)), "m")
    assert "+int x;" in repo.diff(repo.head(), commit)
    assert "tasks/soft max é/kernel/kernel.c" in repo.diff(repo.head(), commit)
    for gone in ("0" * 40, "", "--output=/tmp/x"):
        with pytest.raises(UsageError, match="no commit"):
            repo.diff(repo.head(), gone)


# --------------------------------------------------------------------------------------------- the snapshot


def test_a_clean_task_is_head(repo: Repo, where: Path, top: Path) -> None:
    (top / "README").write_text("edited, but not the task's\n")
    assert repo.snapshot([where], "r-1") == (repo.head(), ())


def test_edits_new_files_and_deletions_are_in_the_snapshot(repo: Repo, where: Path, top: Path) -> None:
    (where / "kernel" / "kernel.c").unlink()
    (where / "kernel" / "new é.c").write_text("new\n")
    (where / "ignored.o").write_text("binary")
    (where / "reference.py").write_text("staged\n")
    (top / ".git/info/exclude").write_text("*.o\n")
    git(top, "add", str(where / "reference.py"))
    (where / "reference.py").write_text("edited after that\n")
    git(top, "init", "-q", str(where / "nested"))
    (where / "nested" / "file").write_text("another repository's\n")
    status = git(top, "status", "--porcelain")
    commit, edited = repo.snapshot([where], "r-1")
    folder = "tasks/soft max é"
    assert edited == (f"{folder}/kernel/kernel.c", f"{folder}/kernel/new é.c", f"{folder}/reference.py")
    names = git(top, "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", commit).splitlines()
    assert names == ["README", f"{folder}/kernel/new é.c", f"{folder}/reference.py", f"{folder}/task.toml"]
    assert git(top, "show", f"{commit}:{folder}/reference.py") == "edited after that\n"
    assert git(top, "rev-parse", f"{commit}^").strip() == repo.head()
    assert git(top, "status", "--porcelain") == status
    assert git(top, "for-each-ref", "refs/keepfast") == ""


# --------------------------------------------------------------------------------------------- candidates


def test_a_candidate_is_a_commit_under_its_own_ref(repo: Repo, where: Path, top: Path) -> None:
    before = repo.files("HEAD", ["kernel/**"], where)
    after = (File("kernel/deep/new.c", b"new\n"), File("kernel/run", b"#!", executable=True))
    commit = repo.commit("r-1", 7, repo.head(), Change(str(where), before, after), "Experiment 7\n\nmore\n")
    assert git(top, "rev-parse", "refs/keepfast/r-1/7").strip() == commit
    assert repo.files(commit, ["kernel/**"], where) == after
    assert git(top, "log", "-1", "--format=%an %ae %B", commit).strip() == "keepfast keepfast@localhost Experiment 7\n\nmore"
    assert git(top, "status", "--short") == ""
    again = repo.commit("r-1", 7, repo.head(), Change(str(where), before, before[:0]), "another try")
    assert git(top, "rev-parse", "refs/keepfast/r-1/7").strip() == again


def test_no_change_is_the_parent(repo: Repo, where: Path, top: Path) -> None:
    before = repo.files("HEAD", ["kernel/**"], where)
    assert repo.commit("r-1", 3, repo.head(), Change(str(where), before, before), "m") == repo.head()
    assert git(top, "rev-parse", "refs/keepfast/r-1/3").strip() == repo.head()


def test_no_hook_filter_or_signature_takes_part(repo: Repo, where: Path, top: Path) -> None:
    for name in ("reference-transaction", "post-commit", "pre-commit"):
        hook = top / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    (top / ".git/info/attributes").write_text("*.c filter=broken eol=crlf\n")
    git(top, "config", "filter.broken.clean", "false")
    for key in ("filter.broken.required", "commit.gpgSign", "core.autocrlf"):
        git(top, "config", key, "true")
    before = repo.files("HEAD", ["kernel/**"], where)
    commit = repo.commit("r-1", 2, repo.head(), Change(str(where), before, (File("kernel/kernel.c", b"a\r\nb\n"),)), "m")
    assert repo.files(commit, ["kernel/**"], where)[0].data == b"a\r\nb\n"


OUTSIDE = ("../../../etc/passwd", "../.git/hooks/pre-commit", "/abs", "a/../b", "a//b", "")
HOSTILE = (*OUTSIDE, ".GIT/config", "a/.gi\u200ct/x", "git~1/x", "x\0y", ".gitmodules")


@pytest.mark.parametrize("path", HOSTILE)
def test_paths_that_git_refuses_are_left_out(repo: Repo, where: Path, top: Path, path: str) -> None:
    before = repo.files("HEAD", ["kernel/**"], where)
    after = (*before, File("kernel/fine.c", b"x"), File(path, b"evil"))
    commit = repo.commit("r-1", 2, repo.head(), Change(str(where), before, after), "m")
    assert git(top, "diff", "--name-only", "HEAD", commit).split()[-1].endswith('kernel/fine.c"')
    assert b"evil" not in subprocess.run(["git", "-C", str(top), "log", "-p", commit], capture_output=True, check=True).stdout
    git(top, "fsck", "--strict")


NAME = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=12).filter(lambda n: storable(n))


@settings(max_examples=25, deadline=None)
@given(files=st.dictionaries(st.lists(NAME, min_size=1, max_size=3).map("/".join), st.binary(max_size=50), min_size=1, max_size=4))
def test_any_name_and_contents_come_back(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    paths = sorted(files)
    if any(b.startswith(f"{a}/") for a in paths for b in paths):
        return  # a file and a folder of one name
    top = _shared(tmp_path_factory)
    repo = Repo.find(top)
    after = tuple(File(f"kernel/{p}", files[p]) for p in paths)
    commit = repo.commit("r-1", 2, repo.head(), Change(str(top), (), after), "m")
    assert {f.path: f.data for f in repo.files(commit, ["kernel/**"], top)} == {f.path: f.data for f in after}


def _shared(factory: pytest.TempPathFactory) -> Path:
    top = factory.getbasetemp() / "any-name"
    if not top.exists():
        repository(top)
    return top


# --------------------------------------------------------------------------------------------- the branch


def chain(repo: Repo, where: Path, values: tuple[bytes, ...]) -> tuple[Keep, ...]:
    keeps, parent, before = [], repo.head(), repo.files("HEAD", ["kernel/**"], where)
    for n, value in enumerate(values, 2):
        after = (File("kernel/kernel.c", value),)
        parent = repo.commit("r-1", n, parent, Change(str(where), before, after), f"experiment {n}")
        before = after
        keeps.append(Keep(parent, f"keep {n}\n\nKeepfast-Experiment: {n}\n", 1e9 + n))
    return tuple(keeps)


def test_settle_is_idempotent_and_grows(repo: Repo, where: Path, top: Path) -> None:
    keeps = chain(repo, where, (b"1", b"2", b"3"))
    base = repo.head()
    assert repo.settle("r-1", base, ()) == base
    one = repo.settle("r-1", base, keeps[:1])
    three = repo.settle("r-1", base, keeps)
    assert repo.settle("r-1", base, keeps) == three
    assert git(top, "rev-parse", "keepfast/r-1~2").strip() == one
    assert git(top, "log", "--format=%(trailers:key=Keepfast-Experiment,valueonly)", "keepfast/r-1").split() == ["4", "3", "2"]
    assert git(top, "fsck", "--strict") == ""


def test_a_branch_called_keepfast_is_in_the_way(repo: Repo, where: Path, top: Path) -> None:
    git(top, "branch", "keepfast")
    with pytest.raises(LedgerError, match=r"a branch or ref is in the way(.|\n)*git branch -m keepfast"):
        repo.settle("r-1", repo.head(), chain(repo, where, (b"1",)))
    assert not list((top / ".git").glob("fast_import_crash_*"))


def test_runs_and_drop(repo: Repo, where: Path, top: Path) -> None:
    chain(repo, where, (b"1", b"2", b"3"))
    git(top, "branch", "keepfast/old-3")
    git(top, "branch", "mine/keepfast")
    assert repo.runs() == ("old-3", "r-1")
    assert repo.drop("r-1", [2, 4, 99]) == 2
    assert git(top, "for-each-ref", "--format=%(refname)", "refs/keepfast").split() == ["refs/keepfast/r-1/3"]
    assert repo.drop("r-1", []) == 0


# --------------------------------------------------------------------------------------------- what cannot be written


def test_a_git_folder_without_rights(repo: Repo, where: Path, top: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere; the read-only file system is the same case")
    folders = [p for p in (top / ".git").rglob("*") if p.is_dir()]
    for folder in folders:
        folder.chmod(0o500)
    try:
        with pytest.raises(LedgerError, match="the repository cannot be written"):
            chain(repo, where, (b"1",))
    finally:
        for folder in folders:
            folder.chmod(0o700)


@pytest.mark.parametrize("options", ["remount,ro", "remount,size=1m"])
def test_a_disk_that_is_read_only_or_full(tmp_path: Path, options: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a tiny tmpfs needs root")
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tiny)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this container may not mount: {done.stderr.decode().strip()}")
    try:
        where = repository(tiny / "repo")
        repo = Repo.find(where)
        subprocess.run(["mount", "-o", options, str(tiny)], check=True)
        with pytest.raises(LedgerError, match=r"the repository cannot be written|the disk is full"):
            chain(repo, where, tuple(os.urandom(300_000) for _ in range(4)))
        subprocess.run(["mount", "-o", "remount,rw,size=8m", str(tiny)], check=True)
        git(tiny / "repo", "fsck", "--strict")
        assert len(chain(repo, where, (b"1", b"2"))) == 2
    finally:
        subprocess.run(["umount", "-l", str(tiny)], check=True)
