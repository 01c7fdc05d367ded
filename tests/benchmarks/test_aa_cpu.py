"""The A/A script with a judge that answers from a script: what is stored, tried again, measured on, and held against the bars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from keepfast.judge.builder import Built
from keepfast.model import SENTENCES, Calibration, Candidate, CaseRound, Machine, Phase, Reason, Round, Verdict
from tests.benchmarks.scripts import script

CALIBRATION = Calibration("m", 0.005, 0.0, 0.0, (("timed", 0.005),), 10, 0.0, 3.0, 0.0)
SCREEN_AND_TEST = (Phase.SCREEN, *[Phase.TEST] * 4)
WANTED = {"rename": 3, "noop": 6, "gain": 4}
Answer = Callable[[Candidate, Candidate], Verdict]


def measured(phase: Phase) -> Round:
    return Round(phase, 0.001, (CaseRound("timed", 0.001, 1e6, 1e6, (0.001, 0.002)),))


def verdict(reason: Reason, phases: tuple[Phase, ...] = SCREEN_AND_TEST) -> Verdict:
    return Verdict(SENTENCES[reason][0], reason, "", rounds=tuple(measured(p) for p in phases))


class Judge:
    """As much of CpuJudge as the script uses. Code is the source's text, so that every other source is other code."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked, self.compared = answer, 0, list[int]()
        self.calibration: Calibration | None = None
        self.trial = SimpleNamespace(progress=lambda phase, made: None)
        self.arms = SimpleNamespace(build=lambda made, dtypes: Built(Path("out.so"), made.tree, 0.1), dtypes={})
        self.bench = SimpleNamespace(machine=Machine("cpu", 2, "", "", "walls", hash="m"))
        self.task = SimpleNamespace(hash="t" * 64, title="softmax")

    def ready(self, start: Candidate, known: Calibration | None) -> Verdict:
        self.calibration = known or CALIBRATION
        return verdict(Reason.START, ())

    def calibrated(self) -> Calibration:
        return self.calibration or CALIBRATION

    def evaluate(self, made: Candidate, against: Candidate, standing: tuple[object, ...], **how: bool) -> Verdict:
        self.asked += 1
        return self.answer(made, against)

    def compare(self, made: Candidate, opponent: str, rounds: int, final: bool) -> None:
        self.compared.append(rounds)
        for _ in range(rounds):
            self.trial.progress(Phase.DIRECT, measured(Phase.DIRECT))


@pytest.fixture(scope="module")
def aa() -> ModuleType:
    return script("aa_cpu")


def honest(made: Candidate, against: Candidate) -> Verdict:
    """No-ops are no gain, gains are kept, renames caught: what a champion computes twenty-one times for twenty is in its text."""
    if b"int64_t again" in against.files[0].data or b"int64_t turn" in against.files[0].data:
        return verdict(Reason.FASTER)
    return verdict(Reason.SAME_CODE, ()) if b"the_" in made.files[0].data else verdict(Reason.NO_GAIN)


def played(aa: ModuleType, folder: Path, answer: Answer, full: int = 2) -> tuple[Judge, Any, Any, Any]:
    judge = Judge(answer)
    lab = aa.Lab(judge, aa.Store(folder / "aa.jsonl", "m", "t"))
    groups, rounds = aa.judged(lab, WANTED, full, 1)
    return judge, lab, groups, rounds


def test_all_bars_hold_for_an_honest_judge(aa: ModuleType, tmp_path: Path) -> None:
    judge, _, groups, _ = played(aa, tmp_path, honest)
    assert judge.asked == 13
    assert [b.name for b in aa.bars(WANTED, groups) if not b.ok] == []


def test_a_judge_that_keeps_everything_misses_the_bar(aa: ModuleType, tmp_path: Path) -> None:
    _, _, groups, _ = played(aa, tmp_path, lambda made, against: verdict(Reason.FASTER))
    assert {b.name for b in aa.bars(WANTED, groups) if not b.ok} == {"no-ops kept", "renames caught untimed"}


def test_a_judge_that_keeps_nothing_misses_the_bar(aa: ModuleType, tmp_path: Path) -> None:
    _, _, groups, _ = played(aa, tmp_path, lambda made, against: verdict(Reason.SLOWER, (Phase.SCREEN,)))
    assert {b.name for b in aa.bars(WANTED, groups) if not b.ok} == {"gains of 5 % kept", "renames caught untimed"}


def test_a_no_op_that_is_rejected_is_not_overlooked(aa: ModuleType, tmp_path: Path) -> None:
    _, _, groups, _ = played(aa, tmp_path, lambda made, against: verdict(Reason.WRONG, ()))
    missed = {b.name for b in aa.bars(WANTED, groups) if not b.ok}
    assert {"neither kept nor reverted", "no-ops and gains not timed"} <= missed


def test_it_goes_on_where_it_was(aa: ModuleType, tmp_path: Path) -> None:
    played(aa, tmp_path, honest)
    judge, _, groups, rounds = played(aa, tmp_path, honest)
    assert judge.asked == 0
    assert judge.compared == []
    assert [len(groups[name]) for name in WANTED] == [3, 6, 4]
    assert len(rounds) == 2


def test_what_the_machine_spoils_is_tried_again_and_not_stored(aa: ModuleType, tmp_path: Path) -> None:
    judge, _, groups, _ = played(aa, tmp_path, lambda made, against: verdict(Reason.MACHINE, ()))
    assert judge.asked == 13 * aa.TRIES
    assert not all(b.ok for b in aa.bars(WANTED, groups))
    judge, *_ = played(aa, tmp_path, honest)
    assert judge.asked == 13


def test_full_rounds_are_those_of_a_keep(aa: ModuleType, tmp_path: Path) -> None:
    judge, lab, groups, rounds = played(aa, tmp_path, honest)
    assert judge.compared == [10, 10], "five of fifteen were there"
    for found in rounds.values():
        assert sorted(r.phase for r in found) == sorted(aa.FULL)
        assert all(not c.blocks for r in found for c in r.cases)
    aa.recordings(lab, tmp_path, groups["noop"], rounds)
    resample = script("resample")
    whole, every = (resample.read(tmp_path / name) for name in ("aa_cpu_rounds.json", "aa_cpu_all_rounds.json"))
    assert [len(e.rounds) for e in whole.evaluations] == [15, 15]
    assert [len(e.rounds) for e in every.evaluations] == [15, 15, 5, 5, 5, 5]


def test_no_two_no_ops_have_the_same_code(aa: ModuleType, tmp_path: Path) -> None:
    _, lab, groups, _ = played(aa, tmp_path, honest)
    seen: set[str] = {lab.code(lab.champion)}
    again = [aa.new_code(lab, n, 1, seen)[1].tree for n in range(6)]
    assert len(set(again)) == 6
    assert [i.key.split()[-1] for i in groups["noop"]] == [tree[:12] for tree in again]
