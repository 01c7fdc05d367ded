"""Each kind of hostile candidate once, through the whole judge: the right verdict, and nothing left behind.

The corpus is that of benchmarks/hostile.py, which tries every kind at every place. Left out here is what takes ten seconds and more.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.judge import trial
from keepfast.judge.judge import CpuJudge
from keepfast.materialise import tree_hash
from keepfast.model import SENTENCES, Calibration, Candidate, Reason, Verdict
from keepfast.walls.base import Walls
from tests.benchmarks.scripts import script

attacks = script("attacks")
shapes, watch, workbench = script("shapes"), script("watch"), script("workbench")

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
KINDS = [a for a in attacks.kinds() if not a.slow]
QUICK = {"columns": 256, "rows": 24}


class Siege:
    """A judge with a champion, and what the machine was like before."""

    def __init__(self, room: Path) -> None:
        source = shapes.source(shapes.Shape())
        self.champion: Candidate = workbench.candidate(source)
        task = workbench.make_task(room / "softmax", source, **QUICK)
        (room / "builds").mkdir(mode=0o711)
        self.judge: CpuJudge = workbench.make_judge(task, Walls.detect(), room / "builds")
        self.places = attacks.places_of(task.folder)
        known = Calibration(self.judge.bench.machine.hash, 0.02, 0.0, 0.0, (("timed", 0.02),), 0, 0.0, 0.0, 0.0)
        workbench.passed(self.judge.ready(self.champion, known))
        self.watch = watch.Watch(room, (Path("/dev/shm"), Path("/var/tmp")), shared=True)

    def wrong(self, attack: Any) -> tuple[str, ...]:
        """What is wrong with the verdict, and what is left behind."""
        files = attacks.files_of(attack, self.places)
        verdict = self.judge.evaluate(Candidate(files, tree_hash(files), "", 1), self.champion, ())
        said = attacks.wrong(attack, verdict)
        return (*([said] if said else []), *self.watch.left())


@pytest.fixture(scope="module")
def siege() -> Iterator[Siege]:
    walls = Walls.detect()
    if walls.strength != "walls":
        pytest.skip(f"the right verdicts are those of full walls, this machine has {walls.strength} (keepfast doctor)")
    with workbench.room() as room, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(room))  # so that what the judge leaves there is seen
        patch.setattr(trial, "PAUSES_S", (0.0,))  # nothing here is about times
        yield Siege(room)


@pytest.mark.parametrize("attack", KINDS, ids=[a.name for a in KINDS])
def test_the_verdict_is_right_and_nothing_is_left(siege: Siege, attack: Any) -> None:
    assert siege.wrong(attack) == ()


def test_there_are_many_kinds() -> None:
    assert len(KINDS) >= 35
    assert len(attacks.corpus()) >= 100


def test_a_breach_is_seen() -> None:
    """An attack that says that something went through is wrong, though its reason is the expected one."""

    def ended(detail: str) -> Verdict:
        return Verdict(SENTENCES[Reason.RETURN_CODE][0], Reason.RETURN_CODE, detail)

    attack = next(a for a in KINDS if a.name == "fork_bomb")
    assert attacks.wrong(attack, ended("case timed: returned 77")) == ""
    assert "1012" in attacks.wrong(attack, ended("case timed: returned 1012"))
