"""Bad input, end to end: one message that says what, where and what to type next; the documented exit code; nothing changed on disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.ledger import Ledger
from tests.cli.conftest import Call, Said, Stand, git
from tests.judge import tasks

TASK = "tasks/größe und form"
USAGE, MACHINE = 2, 5
Edit = Callable[[Path], object]


@pytest.fixture
def repository(empty: Path) -> Path:
    """A repository with a task in it, all committed; the working folder."""
    tasks.write(empty / TASK)
    git(empty, "add", "-A")
    git(empty, "commit", "-qm", "a task")
    return empty


def snapshot(root: Path) -> dict[str, str]:
    """Every file below `root`, .git and .keepfast included, with its mode and what is in it. Left out: what SQLite puts beside its file."""
    found = {}
    for path in sorted(p for p in root.rglob("*") if not p.name.endswith(("-wal", "-shm"))):
        kind = os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[str(path.relative_to(root))] = f"{path.lstat().st_mode:o} {kind}"
    return found


def refused(keepfast: Call, root: Path, *words: str, code: int = USAGE) -> str:
    """The message of a command that has to be refused; everything that holds for all of them is checked here."""
    before = snapshot(root)
    said = keepfast(*words)
    assert said.code == code, (said.out, said.err)
    assert one_message(said)
    assert snapshot(root) == before
    return said.err


def one_message(said: Said) -> bool:
    """What and where in the first line, what to type next in the last, which is indented; a signature is quoted between them."""
    lines = said.err.rstrip("\n").split("\n")
    return said.out == "" and 2 <= len(lines) <= 4 and all(x.startswith("  ") for x in lines[1:]) and len(lines[-1].strip()) > 5


def replaced(name: str, old: str, new: str) -> Edit:
    """An edit of one file of the task."""

    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return edit


# --------------------------------------------------------------------------------------------- the task

TASKS: dict[str, tuple[Edit, str, str]] = {
    "unknown key": (replaced("task.toml", "axes =", "axis ="), "task.toml:3: unknown key `axis`. Did you mean `axes`?", "Keys here: "),
    "wrong type": (
        replaced("task.toml", "schema = 1", 'schema = 1\nthreads = "two"'),
        "task.toml:2: `threads` must be a whole number, not text",
        "",
    ),
    "no task file": (lambda folder: (folder / "task.toml").unlink(), f"no task at `{TASK}`", "keepfast init "),
    "no reference": (lambda folder: (folder / "reference.py").unlink(), "no reference.py in ", "keepfast init"),
    "no entry": (lambda folder: (folder / "kernel" / "kernel.c").unlink(), "kernel/kernel.c does not exist", "change `entry`"),
    "signature": (replaced("task.toml", "Tensor x)", "Tensr x)"), "task.toml:2: ", "Tensor"),
    "unbound axis": (replaced("task.toml", "n = 7", "weight = 1.0"), "case `odd` does not bind axis `n`", "n = 1024"),
    "editable": (
        replaced("task.toml", "axes", 'editable = ["**"]\naxes'),
        "task.toml:3: `**` reaches task.toml",
        'editable = ["kernel/**"]',
    ),
    "editable reference": (
        replaced("task.toml", "axes", 'editable = ["kernel/**", "*.py"]\naxes'),
        "`*.py` reaches reference.py",
        "kernel/**",
    ),
    "index role": (
        replaced("task.toml", "[goal]", '[arguments]\nx = { role = "index" }\n[goal]'),
        "`index` of `x` needs a GPU judge",
        "name a language of a GPU",
    ),
    "bf16": (replaced("task.toml", "[goal]", '[arguments]\nx = { dtype = "bfloat16" }\n[goal]'), "NumPy cannot hold", "Take it out"),
}


@pytest.mark.parametrize("command", ["check", "run", "calibrate"])
@pytest.mark.parametrize("name", TASKS)
def test_a_task_file_that_is_wrong(repository: Path, keepfast: Call, name: str, command: str) -> None:
    edit, what, step = TASKS[name]
    edit(repository / TASK)
    said = refused(keepfast, repository, command, TASK)
    assert what in said.split("\n")[0]
    assert step in said.rstrip("\n").split("\n")[-1]


def test_the_column_of_a_signature_is_shown(repository: Path, keepfast: Call) -> None:
    replaced("task.toml", "Tensor x)", "Tensor x, Tensr y)")(repository / TASK)
    assert "column 18" in refused(keepfast, repository, "check", TASK)


REFERENCES: dict[str, tuple[Edit, str]] = {
    "nan": (replaced("reference.py", "x * x + 1", "x * np.nan"), "reference.py, case main: reference() returned NaN or infinity in `out`"),
    "constant": (replaced("reference.py", "x * x + 1", "np.ones_like(x)"), "reference.py, case main: reference() returned the same value"),
    "raises": (replaced("reference.py", "x * x + 1", "x.nothing"), "reference.py:9: AttributeError: "),
}


@pytest.mark.usefixtures("walled")
@pytest.mark.parametrize(("name", "command"), [("nan", "check"), ("nan", "run"), ("constant", "run"), ("raises", "calibrate")])
def test_a_reference_that_cannot_be_judged(repository: Path, keepfast: Call, name: str, command: str) -> None:
    edit, what = REFERENCES[name]
    edit(repository / TASK)
    assert refused(keepfast, repository, command, TASK).startswith(what)


@pytest.mark.usefixtures("walled")
def test_a_reference_that_ignores_its_input(repository: Path, keepfast: Call) -> None:
    folder = repository / TASK
    replaced("task.toml", "Tensor x)", "Tensor x, Tensor y)")(folder)
    replaced("reference.py", '{"x"', '{"y": rng.standard_normal(case.n), "x"')(folder)
    replaced("reference.py", "reference(x)", "reference(x, y)")(folder)
    assert "reference.py: reference() ignores its input `y`" in refused(keepfast, repository, "run", TASK)


# --------------------------------------------------------------------------------------------- repository and machine


@pytest.mark.usefixtures("walled")
@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("commands", "what", "step"),
    [
        ((), "not inside a git repository", "git init"),
        ((("init", "-q"),), "the repository has no commit yet", "git commit"),
        ((("init", "-q", "--bare"),), "a bare repository has no files to work on", "git clone"),
    ],
    ids=["none", "unborn", "bare"],
)
def test_a_repository_that_cannot_be_worked_in(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keepfast: Call,
    commands: tuple[tuple[str, ...], ...],
    what: str,
    step: str,
    command: str,
) -> None:
    root = tmp_path / "no répo"
    root.mkdir()
    monkeypatch.chdir(root)
    for words in commands:
        git(root, *words)
    tasks.write(root / TASK)
    said = refused(keepfast, root, command, TASK)
    assert what in said
    assert step in said


def test_no_identity_for_the_finished_branch(stand: Stand, keepfast: Call) -> None:
    git(stand.root, "config", "--unset", "user.name")
    git(stand.root, "config", "--unset", "user.email")
    said = refused(keepfast, stand.root, "finalize")
    assert "git does not know who you are" in said
    assert "git config user.name" in said


@pytest.mark.usefixtures("walled")
@pytest.mark.parametrize("command", ["check", "run", "calibrate"])
def test_no_compiler(repository: Path, keepfast: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").symlink_to(str(shutil.which("git")))
    monkeypatch.setenv("PATH", str(tools))
    said = refused(keepfast, repository, command, TASK, code=MACHINE)
    assert "no C compiler" in said
    assert "apt install gcc" in said


@pytest.mark.usefixtures("walled")
@pytest.mark.parametrize("command", ["check", "run", "calibrate"])
def test_a_second_run_on_the_same_ledger(repository: Path, keepfast: Call, command: str) -> None:
    with Ledger.open(repository / ".keepfast") as ledger, ledger.hold("first-1"):
        said = refused(keepfast, repository, command, TASK)
    assert f"another run holds this ledger (pid {os.getpid()}, started " in said
    assert "keepfast stop" in said


@pytest.mark.usefixtures("walled")
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--resume",), "no ledger here yet"),
        (("--proposer", "serch"), "unknown proposer `serch`. Did you mean `search`?"),
        (("--walls", "wal"), "--walls cannot be `wal`. Did you mean `walls`?"),
    ],
)
def test_a_run_that_cannot_be_as_asked(repository: Path, keepfast: Call, words: tuple[str, ...], what: str) -> None:
    assert what in refused(keepfast, repository, "run", TASK, *words)


# --------------------------------------------------------------------------------------------- candidates


@pytest.mark.usefixtures("walled")
def test_a_working_tree_with_a_link_out(repository: Path, keepfast: Call) -> None:
    path = repository / TASK / "kernel" / "more.h"
    path.symlink_to("/etc/passwd")
    for command in ("check", "run"):
        said = refused(keepfast, repository, command, TASK)
        assert "kernel/more.h: is a symbolic link" in said
        assert "cp --remove-destination" in said


@pytest.mark.usefixtures("walled")
def test_a_hundred_megabytes_of_source_in_the_working_tree(repository: Path, keepfast: Call) -> None:
    """A verdict, not an error: the change could be judged, and is turned away."""
    with (repository / TASK / "kernel" / "generated.h").open("wb") as file:
        file.truncate(100_000_000)
    before = snapshot(repository)
    said = keepfast("check", TASK, "--json")
    assert said.code == 3, said.err
    found = json.loads(said.out)["verdict"]
    assert (found["kind"], found["reason"]) == ("reject", "too-big")
    assert "100.0 MB of source" in found["detail"]
    assert snapshot(repository) == before


LINK = """link out

diff --git a/kernel/more.h b/kernel/more.h
new file mode 120000
--- /dev/null
+++ b/kernel/more.h
@@ -0,0 +1 @@
+/etc/passwd
\\ No newline at end of file
"""
STALE = """was written for another kernel

--- a/kernel/kernel.c
+++ b/kernel/kernel.c
@@ -1,3 +1,3 @@
 #include "keepfast.h"
-int never(void)
+int ever(void)
 {
"""


@pytest.mark.usefixtures("calm", "walled")
def test_a_deck_of_bad_candidates(repository: Path, keepfast: Call) -> None:
    """Each is a verdict with its reason; the run goes on, and nothing but .git and .keepfast has changed."""
    deck = repository / TASK / "deck"
    (deck / "003-hundred-megabytes" / "kernel").mkdir(parents=True)
    (deck / "001-stale.patch").write_text(STALE)
    (deck / "002-link.patch").write_text(LINK)
    with (deck / "003-hundred-megabytes" / "kernel" / "generated.h").open("wb") as file:
        file.truncate(100_000_000)
    ours = ("/.keepfast", ".git", ".keepfast")
    before = {name: kind for name, kind in snapshot(repository).items() if not name.startswith(ours)}
    said = keepfast("run", TASK, "--proposer", "deck")
    if said.code == MACHINE:
        pytest.skip(f"this machine is too busy to judge: {said.err}")
    assert said.code == 7, said.err
    log = json.loads(keepfast("log", "--json").out)["experiments"]
    assert [(e["kind"], e["reason"]) for e in log[1:]] == [("reject", "does-not-apply"), ("reject", "guard"), ("reject", "too-big")]
    assert "kernel/more.h is a symbolic link" in log[2]["detail"]
    assert {name: kind for name, kind in snapshot(repository).items() if not name.startswith(ours)} == before
    subprocess.run(("git", "fsck", "--strict"), cwd=repository, check=True, capture_output=True)
    assert sum(f.stat().st_size for f in (repository / ".git").rglob("*") if f.is_file()) < 1_000_000
