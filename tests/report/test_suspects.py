"""The queue of suspects: who waits, since when, why, and the evidence side by side."""

from __future__ import annotations

from msgspec.structs import replace

from keepfast.model import CaseTime, Experiment, Fact, Kind, Reason, Rung
from keepfast.report import show, suspects
from tests.report import samples

BEGAN = samples.BEGAN


def suspect(n: int, parent: int = 7, cases: tuple[CaseTime, ...] = ()) -> Experiment:
    v = samples.verdict(
        Reason.TOO_FAST, rungs=samples.rungs(), detail="case n4096: 1.21 ms, the limit is 2.00 ms", seconds=4.0, cases=cases
    )
    return samples.experiment(n, f"skip {n}", v, 4.1, parent=parent)


def cleared(e: Experiment, n: int) -> Experiment:
    rungs = (Rung("cleared", True, 0.0, (Fact("by", "Ada"),)),)
    return replace(e, n=n, verdict=replace(e.verdict, kind=Kind.KEEP, reason=Reason.CLEARED, detail="padding", rungs=rungs))


def test_only_those_that_nobody_cleared_wait() -> None:
    told = (*samples.experiments(), suspect(12))
    assert [e.n for e in suspects.waiting(told)] == [9, 12]
    done = (*told, cleared(told[8], 13))
    assert [e.n for e in suspects.waiting(done)] == [12]
    assert suspects.by(done[-1]) == "Ada"
    assert suspects.by(told[8]) == ""


def test_the_table_says_since_when_and_why() -> None:
    told = (*samples.experiments(), suspect(12, parent=2))
    said = suspects.table(told, now=BEGAN + 20 * 9 + 4.1 + 7200)
    assert said[1].split()[:6] == ["9", "2", "h", "00", "min", "too-fast"]
    assert "1.21 ms, the limit is 2.00 ms (skip the sum)" in said[1]
    assert "no longer the champion: offer it again" in " ".join(one.strip() for one in said[2:5])
    assert all(len(one) <= 100 for one in said)
    assert suspects.table(samples.experiments()[:8]) == ["no suspect waits"]


def test_evidence_puts_claim_opponent_and_limit_side_by_side() -> None:
    case = samples.case_time("n4096", 200.0, 1.21e6, "experiment 7", limit_ns=2.0e6)
    free = samples.case_time("odd", 10.0, 5.0e3, "experiment 7")
    told = (*samples.experiments()[:8], suspect(9, cases=(case, free)))
    said = show.show(samples.book(experiments=told), told[-1])
    rows = [one.split() for one in said if one.split()[0] == "n4096"]
    assert rows == [["n4096", "1.21", "ms", "3.63", "ms", "2.00", "ms", "0.333x", "0.60x", "!"]]
    assert any(one.split()[:1] == ["odd"] and "not said" in one for one in said)
    assert any(one.startswith("clear") for one in said)
