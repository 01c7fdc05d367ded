"""kill -9 at every named point: the resumed run ends as the uninterrupted one did, nothing lost, nothing twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from keepfast import crash, loop
from keepfast.ledger import Ledger
from keepfast.model import End
from keepfast.repo import Repo
from tests.loop import kit

# Where in the eventful run each point is passed; one without a number is passed once, or its first time is as good as any.
WHERE = (
    "begun",
    "run-started",
    "baseline-stored",
    "start-marked",
    "start-appended",
    "inbox-taken@4",
    "proposed@5",
    "artifact-written",
    "committed@5",
    "judged@5",
    "append-open@5",
    "appended@5",
    "settled@5",
    "direct-measured@12",
    "direct-stored@12",
    "ending",
    "ended",
)


class Story(NamedTuple):
    """What must not depend on where a run was killed."""

    state: str
    experiments: tuple[tuple[object, ...], ...]
    directs: tuple[tuple[object, ...], ...]
    branch: tuple[str, ...]
    refs: tuple[str, ...]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh")
    kit.repository(folder)
    return folder


@pytest.fixture(scope="module")
def uninterrupted(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("whole") / "copy"
    shutil.copytree(fresh, folder)
    return resumed(folder)


def test_every_point_is_hit() -> None:
    assert tuple(w.split("@")[0] for w in WHERE) == crash.POINTS


@pytest.mark.parametrize("point", WHERE)
def test_kill_and_resume(point: str, fresh: Path, tmp_path: Path, uninterrupted: Story) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(fresh, folder)
    assert killed(folder, point) == -signal.SIGKILL
    healthy(folder)
    before = experiments(folder)
    story = resumed(folder)
    healthy(folder)
    assert story == uninterrupted
    assert experiments(folder)[: len(before)] == before  # what was paid for is still there, as it was
    assert (folder / "README").read_text() == "mine\n"
    assert kit.git(folder, "status", "--short") == ""


def killed(folder: Path, point: str) -> int:
    """Run until the point kills the process; its exit status."""
    where = folder / "tasks" / "soft max é"
    env = os.environ | {"KEEPFAST_CRASH": point, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run([sys.executable, kit.__file__, str(where)], env=env, capture_output=True, check=False).returncode


def resumed(folder: Path) -> Story:
    where = folder / "tasks" / "soft max é"
    with Ledger.open(Repo.find(where).ensure_state()) as ledger:
        session = kit.eventful(where, ledger)
        end = loop.run(session)
        assert ledger.broken(end.run.id) is None
        assert ledger.run(end.run.id).state == end.state
        assert len(ledger.baselines(end.run.id)) == 2
        return story_of(folder, ledger, end)


def story_of(folder: Path, ledger: Ledger, end: End) -> Story:
    run = end.run.id
    seen = ledger.experiments(run, rounds=True)
    assert [e.n for e in seen] == list(range(1, len(seen) + 1))
    return Story(
        state=end.state,
        experiments=tuple((e.n, e.title, e.verdict, e.tree, e.parent) for e in seen),
        directs=tuple((d.n, d.against, d.estimate.d, d.final) for d in ledger.directs(run)),
        branch=tuple(kit.git(folder, "log", "--format=%s %T", end.branch).splitlines()),
        refs=tuple(kit.git(folder, "for-each-ref", "--format=%(refname) %(tree)", "refs/keepfast/").splitlines()),
    )


def experiments(folder: Path) -> list[object]:
    with Ledger.open(folder / ".keepfast") as ledger:
        run = ledger.latest()
        return list(ledger.experiments(run.id, rounds=True)) if run else []


def healthy(folder: Path) -> None:
    kit.git(folder, "fsck", "--strict")
    with Ledger.open(folder / ".keepfast") as ledger:
        assert ledger._store.one("PRAGMA integrity_check")[0] == "ok"
        assert ledger._store.one("PRAGMA foreign_key_check") is None
        assert ledger.holder() is None
