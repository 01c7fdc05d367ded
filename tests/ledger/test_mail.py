"""Ideas, commands and events: the only tables that others than the loop write to or follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast import model
from keepfast.errors import UsageError
from keepfast.ledger import Ledger
from keepfast.testing import keep
from tests.ledger.test_ledger import experiment, run


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path) as opened:
        opened.start(run("r-1"))
        yield opened


def test_ideas_belong_to_a_task(ledger: Ledger) -> None:
    assert ledger.add_idea("a", "keep rows in registers").n == 1
    assert ledger.add_idea("a", "use \ud800 lanes", "agent").text == "use ? lanes"
    assert ledger.add_idea("b", "other task").n == 1
    ledger.drop_idea("a", 1, "rows are new in every call")
    assert [(i.state, i.why) for i in ledger.ideas("a")] == [("dead", "rows are new in every call"), ("open", "")]
    with pytest.raises(UsageError, match="no idea 7 for task a"):
        ledger.drop_idea("a", 7)
    with pytest.raises(ValueError, match="not alive"):
        ledger.set_idea("a", 1, "alive")


def test_a_command_is_taken_once(ledger: Ledger, tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as other:
        other.post("stop")
        other.post("budget", "experiments=300")
    this = ledger.run("r-1")
    assert [(c.command, c.argument) for c in ledger.take(this)] == [("stop", ""), ("budget", "experiments=300")]
    assert ledger.take(this) == ()
    assert [c.command for c in ledger.commands("r-1")] == ["stop", "budget"]
    assert ledger.commands("r-2") == ()


def test_a_command_for_one_run_waits_for_it(ledger: Ledger) -> None:
    ledger.start(run("r-2"))
    ledger.post("budget", "hours=9", "r-2")
    assert ledger.take(ledger.run("r-1")) == ()
    assert [c.argument for c in ledger.take(ledger.run("r-2"))] == ["hours=9"]


def test_an_idea_arrives_in_the_transaction_that_takes_it(ledger: Ledger) -> None:
    ledger.post("idea", "unroll")
    ledger.take(ledger.run("r-1"))
    assert [(i.text, i.author) for i in ledger.ideas("soft max é")] == [("unroll", "human")]


def test_events_are_followed_from_an_id_on(ledger: Ledger) -> None:
    ledger.add_event("r-1", model.Event("propose", "change 1", n=1))
    ledger.append("r-1", experiment(1, keep(1.2)))
    first, second = ledger.events("r-1")
    assert (first.event.text, second.event.kind, second.event.n) == ("change 1", "verdict", 1)
    assert second.event.experiment == ledger.experiments("r-1")[0]
    assert ledger.events("r-1", first.id) == (second,)
    assert ledger.events("r-1", second.id) == ()
    assert ledger.events("r-2") == ()
