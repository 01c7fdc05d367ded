"""The ledger's records: what goes in comes out, in order, once, and a chain shows whether anyone changed it."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from keepfast import model
from keepfast.errors import LedgerError, UsageError
from keepfast.ledger import Ledger
from keepfast.ledger.schema import MIGRATIONS
from keepfast.ledger.store import decode, encode
from keepfast.testing import calibration, direct, keep, reject, revert, void

MACHINE = model.Machine("a cpu", 2, "6.1", "gcc 12", "walls", hash="machine")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "a folder é") as opened:
        opened.start(run("r-1"))
        yield opened


def run(name: str, task: str = "soft max é", started: float = 1.0) -> model.Run:
    return model.Run(name, task, "hash", "/task", f"keepfast/{name}", "base", "head", 7, started, MACHINE, (("proposer", "deck"),))


def experiment(n: int, verdict: model.Verdict, **more: object) -> model.Experiment:
    plain = model.Experiment(n, "deck", f"change {n}", "", None, f"tree{n}", f"c{n}", 1, verdict, float(n), 2.0)
    return replace(plain, **more)


def fill(ledger: Ledger, *verdicts: model.Verdict) -> list[model.Experiment]:
    made = [experiment(i, v) for i, v in enumerate(verdicts, 1)]
    for e in made:
        ledger.append("r-1", e)
    return made


# --------------------------------------------------------------------------------------------- runs


def test_runs(ledger: Ledger) -> None:
    ledger.start(run("r-2", started=2.0))
    ledger.start(run("sum-1", "sum", started=3.0))
    assert [r.id for r in ledger.runs()] == ["r-1", "r-2", "sum-1"]
    assert ledger.run("r-2") == run("r-2", started=2.0)
    assert (ledger.latest() or run("x")).id == "sum-1"
    assert (ledger.latest("soft max é") or run("x")).id == "r-2"
    assert ledger.latest("other") is None
    ledger.end("r-2", "goal")
    assert ledger.run("r-2").state == "goal"


def test_a_run_starts_once(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="run r-1 is in the ledger already"):
        ledger.start(run("r-1"))


def test_an_unknown_run_names_the_nearest(ledger: Ledger) -> None:
    with pytest.raises(UsageError, match=r"no run `r-11` in this ledger\. Did you mean `r-1`\?"):
        ledger.run("r-11")


# --------------------------------------------------------------------------------------------- experiments


def test_what_goes_in_comes_out(ledger: Ledger) -> None:
    made = fill(ledger, keep(1.2), revert(), reject(cheat=True), void())
    assert ledger.experiments("r-1", rounds=True) == tuple(made)
    assert len(ledger.experiment("r-1", 1).verdict.rounds) == 11
    assert all(not e.verdict.rounds for e in ledger.experiments("r-1"))
    assert [e.n for e in ledger.experiments("r-1", newest=2)] == [3, 4]
    assert ledger.experiments("r-1", newest=0) == ()
    assert dict(ledger.counts("r-1")) == {"keep": 1, "revert": 1, "reject": 1, "suspect": 0, "void": 1}


def test_numbers_follow_one_another(ledger: Ledger) -> None:
    fill(ledger, keep(1.2))
    for n in (1, 3, 0):
        with pytest.raises(LedgerError, match=f"experiment {n} cannot follow experiment 1 of r-1"):
            ledger.append("r-1", experiment(n, revert()))
    assert len(ledger.experiments("r-1")) == 1


def test_an_experiment_of_no_run_is_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError):
        ledger.append("r-9", experiment(1, revert()))


def test_all_or_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    from keepfast.ledger import core

    def fail(name: str, n: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(core.crash, "point", fail)
    with pytest.raises(KeyboardInterrupt):
        ledger.append("r-1", experiment(1, keep(1.1)))
    monkeypatch.undo()
    assert ledger.experiments("r-1") == ()
    fill(ledger, keep(1.1))
    assert ledger.broken("r-1") is None


def test_champion_is_the_last_keep(ledger: Ledger) -> None:
    assert ledger.champion("r-1") is None
    fill(ledger, keep(1.2), keep(1.1), revert())
    assert (ledger.champion("r-1") or experiment(0, void())).n == 2
    assert [e.n for e in ledger.keeps("r-1")] == [1, 2]


def test_seen_is_the_first_with_a_verdict(ledger: Ledger) -> None:
    ledger.append("r-1", experiment(1, void(), tree="t"))
    assert ledger.seen("r-1", "t") is None
    ledger.append("r-1", experiment(2, revert(), tree="t"))
    ledger.append("r-1", experiment(3, replace(revert(), code="machine code"), tree="t"))
    assert (ledger.seen("r-1", "t") or experiment(0, void())).n == 2
    assert (ledger.seen_code("r-1", "machine code") or experiment(0, void())).n == 3
    assert ledger.seen_code("r-1", "") is None  # what was never built is not alike
    assert ledger.seen("r-2", "t") is None


def test_an_unknown_experiment(ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="no experiment 5 in run r-1"):
        ledger.experiment("r-1", 5)


def test_cost_and_idea_go_with_the_experiment(ledger: Ledger) -> None:
    for words in ("one", "two", "three"):
        ledger.add_idea("soft max é", words)
    ledger.set_idea("soft max é", 3, "dead", "no")
    ledger.append("r-1", experiment(1, keep(1.1), idea=1, dollars=0.5, tokens=100))
    ledger.append("r-1", experiment(2, revert(), idea=2, dollars=0.25, tokens=10))
    ledger.append("r-1", experiment(3, keep(1.1), idea=3))
    assert ledger.spent("r-1") == (0.75, 110)
    assert [i.state for i in ledger.ideas("soft max é")] == ["kept", "trying", "dead"]


def test_broken_text_and_odd_numbers_are_stored(ledger: Ledger) -> None:
    odd = replace(reject(detail="a half \ud800 surrogate \x1b[31m\x00"), mde=math.inf, false_keep=-math.inf)
    ledger.append("r-1", experiment(1, odd, title="\udfff title"))
    found = ledger.experiment("r-1", 1)
    assert found.title == "? title"
    assert found.verdict.detail == "a half ? surrogate \x1b[31m\x00"
    assert (found.verdict.mde, found.verdict.false_keep) == (math.inf, -math.inf)
    assert ledger.broken("r-1") is None


FLOATS = st.floats(allow_nan=False)
WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
PAIRS = st.tuples(WORDS, st.one_of(st.integers(-(2**63), 2**63 - 1), FLOATS, WORDS, st.booleans()))


@settings(max_examples=60, deadline=None)
@given(title=WORDS, numbers=st.lists(FLOATS, max_size=8), tunables=st.lists(PAIRS, max_size=4), cheat=st.booleans())
def test_records_survive(title: str, numbers: list[float], tunables: list[tuple[str, object]], cheat: bool) -> None:
    rounds = tuple(model.Round(model.Phase.TEST, d, (model.CaseRound("c", d, d, d, tuple(numbers)),)) for d in numbers)
    verdict = replace(keep(1.1), rounds=rounds, cheat=cheat)
    made = experiment(1, verdict, title=title, tunables=tuple(tunables))
    back = decode(encode(made), model.Experiment, "here")
    assert back == made
    assert [type(v) for _, v in back.tunables] == [type(v) for _, v in made.tunables]


def test_records_of_an_older_keepfast_are_read() -> None:
    old = msgspec.to_builtins(experiment(1, revert()))
    del old["structure"], old["dollars"]
    old["a field that is gone"] = 1
    assert decode(msgspec.msgpack.encode(old), model.Experiment, "here") == experiment(1, revert())


# --------------------------------------------------------------------------------------------- the chain


def test_the_chain_shows_what_was_changed(ledger: Ledger) -> None:
    fill(ledger, keep(1.2), keep(1.1), revert())
    heads = [ledger.head_hash("r-1", n) for n in (1, 2, 3)]
    assert len({*heads, ledger.head_hash("r-1")}) == 3
    assert ledger.head_hash("r-1") == heads[2]
    assert ledger.broken("r-1") is None
    better = encode(replace(experiment(2, keep(9.9)), verdict=replace(keep(9.9), rounds=())))
    ledger._store.execute("UPDATE experiments SET record = ? WHERE n = 2", better)
    assert ledger.broken("r-1") == 2


@pytest.mark.parametrize("sql", ["DELETE FROM rounds WHERE n = 2 AND i = 3", "DELETE FROM experiments WHERE n = 2"])
def test_the_chain_shows_what_is_gone(ledger: Ledger, sql: str) -> None:
    fill(ledger, keep(1.2), keep(1.1), revert())
    ledger._store.execute(sql)
    assert ledger.broken("r-1") in (2, 3)


# --------------------------------------------------------------------------------------------- measurements


def test_measurements(ledger: Ledger) -> None:
    ledger.add_direct("r-1", direct(2, -0.1))
    ledger.add_direct("r-1", direct(2, -0.1, against="baseline numpy", final=True))
    assert [(d.against, d.final) for d in ledger.directs("r-1")] == [("start", False), ("baseline numpy", True)]
    ledger.add_baseline("r-1", model.BaselineResult("numpy", False, "wrong", None))
    ledger.add_baseline("r-1", model.BaselineResult("numpy", True, "", direct(1, -0.2).estimate))
    assert [b.ok for b in ledger.baselines("r-1")] == [True]
    assert ledger.directs("r-2") == ledger.baselines("r-2") == ()


def test_calibration_of_a_machine_and_a_task(ledger: Ledger) -> None:
    ledger.add_calibration("task", calibration("m1"))
    newer = replace(calibration("m1"), sigma=0.1)
    ledger.add_calibration("task", newer)
    assert ledger.calibration("m1", "task") == newer
    assert ledger.calibration("m1", "other") is None
    assert ledger.calibration("m2", "task") is None


# --------------------------------------------------------------------------------------------- versions and damage


def test_a_newer_ledger_is_refused(ledger: Ledger) -> None:
    ledger._store.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(LedgerError, match="newer keepfast"), Ledger.open(ledger.folder):
        pass


def test_reading_an_older_ledger_says_how_to_update(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    with pytest.raises(LedgerError, match="older keepfast"), Ledger.open(tmp_path, readonly=True):
        pass


def test_reading_where_there_is_none_makes_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no ledger here yet"), Ledger.open(tmp_path / "no", readonly=True):
        pass
    assert not (tmp_path / "no").exists()


def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(LedgerError, match="is damaged"), Ledger.open(tmp_path):
        pass


def test_a_damaged_record_says_so(ledger: Ledger) -> None:
    fill(ledger, keep(1.1))
    ledger._store.execute("UPDATE experiments SET record = ?", b"\x81\xa1nonsense")
    with pytest.raises(LedgerError, match="record that cannot be read"):
        ledger.experiments("r-1")


def test_readers_see_what_a_writer_has_committed(ledger: Ledger) -> None:
    with Ledger.open(ledger.folder, readonly=True) as reader:
        assert reader.experiments("r-1") == ()
        fill(ledger, keep(1.1))
        assert len(reader.experiments("r-1")) == 1
        with pytest.raises(LedgerError, match="read-only"):
            reader.append("r-1", experiment(2, revert()))


def test_settings_of_the_database(ledger: Ledger) -> None:
    assert ledger._store.one("PRAGMA journal_mode")[0] == "wal"
    assert ledger._store.one("PRAGMA synchronous")[0] == 2
    assert sqlite3.sqlite_version_info >= (3, 22)  # readers of a write-ahead log
