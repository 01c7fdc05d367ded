"""`attach` and `pause`: from another terminal, while a run is going on."""

from __future__ import annotations

import threading
import time

import pytest

from keepfast.model import Event
from tests.cli.conftest import Call, Sleepless, Stand
from tests.report import samples


def test_pause_and_go_on_are_asked_of_the_run(keepfast: Call, stand: Stand) -> None:
    assert "run softmax-1 is not going on" in keepfast("pause").err
    with stand.ledger() as ledger, ledger.hold(stand.run.id):
        assert "run softmax-1 pauses after the experiment in flight" in keepfast("pause").out
        assert "run softmax-1 goes on" in keepfast("pause", "--off").out
        assert [(c.command, c.argument) for c in ledger.take(stand.run)] == [("pause", ""), ("pause", "off")]


def test_there_is_nothing_to_attach_to(keepfast: Call, stand: Stand) -> None:
    said = keepfast("attach")
    assert (said.code, "there is nothing to watch" in said.err) == (2, True)


def test_what_happens_is_shown_until_the_run_ends(keepfast: Call, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is written in the last moment; what was before is only summed up."""
    monkeypatch.setattr("keepfast.cli.attach.BETWEEN_SECONDS", 0.01)
    monkeypatch.setattr("keepfast.cli.place.task_of", lambda place: samples.task())
    shown: list[Event] = []
    watching = threading.Event()

    def take(live: object, event: Event) -> None:
        shown.append(event)

    monkeypatch.setattr("keepfast.report.live.Live.__call__", take)
    monkeypatch.setattr("keepfast.cli.attach.time", Sleepless(watching))
    with stand.ledger() as ledger:
        ledger.add_event(stand.run.id, Event("note", "long ago"))

    def run() -> None:
        with stand.ledger() as ledger, ledger.hold(stand.run.id):
            held.set()
            watching.wait(30)
            ledger.add_event(stand.run.id, Event("note", "one"))
            time.sleep(0.05)
            ledger.add_event(stand.run.id, Event("note", "two"))

    held = threading.Event()
    other = threading.Thread(target=run)
    other.start()
    held.wait(30)
    said = keepfast("attach")
    other.join()
    assert [e.text for e in shown] == ["one", "two"]
    assert "the run has ended: keepfast report" in said.out


def test_ctrl_c_leaves_the_run_alone(keepfast: Call, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("keepfast.cli.attach.time.sleep", interrupted)
    monkeypatch.setattr("keepfast.cli.place.task_of", lambda place: samples.task())
    with stand.ledger() as ledger, ledger.hold(stand.run.id):
        said = keepfast("attach")
        assert (said.code, "left: the run goes on" in said.out) == (0, True)
        assert ledger.holder() is not None
