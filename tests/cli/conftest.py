"""A repository with a run in its ledger, and the command line called in this process."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from keepfast.cli.main import main
from keepfast.ledger import Ledger
from keepfast.model import Run
from tests.report import samples
from tests.report.conftest import golden as golden
from tests.report.conftest import utc as utc

FIXED = {
    "GIT_AUTHOR_DATE": "1764542460 +0000",
    "GIT_COMMITTER_DATE": "1764542460 +0000",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}
NAMED = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main")


class Said(Struct):
    code: int
    out: str
    err: str


Call = Callable[..., Said]


def git(folder: Path, *args: str) -> str:
    return subprocess.run(
        ("git", *NAMED, *args), cwd=folder, env=os.environ | FIXED, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def keepfast(capsys: pytest.CaptureFixture[str]) -> Call:
    """`keepfast("log", "--json")`: exit code, stdout, stderr."""

    def call(*args: str) -> Said:
        with pytest.raises(SystemExit) as left:
            main(args)
        shown = capsys.readouterr()
        return Said(int(left.value.code or 0), shown.out, shown.err)

    return call


class Sleepless:
    """`time`, whose first sleep says that the watching has begun."""

    def __init__(self, begun: threading.Event) -> None:
        self.begun = begun

    def sleep(self, seconds: float) -> None:
        self.begun.set()
        time.sleep(seconds)


class Stand(Struct):
    root: Path
    run: Run

    @property
    def state(self) -> Path:
        return self.root / ".keepfast"

    def ledger(self) -> Ledger:
        return Ledger.open(self.state)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, which is the working folder."""
    for name, value in FIXED.items():
        monkeypatch.setenv(name, value)
    root = tmp_path / "the repo"
    root.mkdir()
    monkeypatch.chdir(root)
    git(root, "init", "-q")
    git(root, "config", "user.name", "Test")
    git(root, "config", "user.email", "test@example.org")
    (root / "kernel.c").write_text("int v = 1;\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "start")
    return root


@pytest.fixture
def stand(empty: Path) -> Stand:
    """The sample run in a real ledger; every experiment is a commit on the champion it was judged against."""
    base = git(empty, "rev-parse", "HEAD")
    commits = {1: base}
    with Ledger.open(empty / ".keepfast") as ledger:
        run = replace(samples.run(), base=base, head=base, task_folder="tasks/softmax rows")
        ledger.start(run)
        for e in samples.experiments():
            commits[e.n] = commits[e.n] if e.n == 1 else _commit(empty, commits[e.parent], e.n)
            ledger.append(run.id, replace(e, commit="" if e.n == 11 else commits[e.n]))
        for direct in samples.directs():
            ledger.add_direct(run.id, direct)
        for baseline in samples.baselines():
            ledger.add_baseline(run.id, baseline)
        ledger.add_calibration(run.task_hash, samples.calibration())
        for idea in samples.ideas():
            ledger.add_idea(run.task, idea.text)
        ledger.set_idea(run.task, 2, "dead", "rows are new in every call")
    return Stand(empty, run)


def _commit(root: Path, parent: str, n: int) -> str:
    """A commit on `parent` that sets the kernel's value to `n`, without touching the checkout."""
    blob = subprocess.run(
        ("git", "hash-object", "-w", "--stdin"), cwd=root, input=f"int v = {n};\n".encode(), check=True, capture_output=True
    )
    tree = subprocess.run(
        ("git", "mktree"),
        cwd=root,
        input=f"100644 blob {blob.stdout.decode().strip()}\tkernel.c\n".encode(),
        check=True,
        capture_output=True,
    )
    commit = git(root, "commit-tree", tree.stdout.decode().strip(), "-p", parent, "-m", f"experiment {n}")
    git(root, "update-ref", f"refs/keepfast/softmax-1/{n}", commit)
    return commit
