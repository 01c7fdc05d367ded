"""Genuine coding-agent CLIs against the scripted model: no key, no network, and each must leave the edit and an exact bill.

They are looked for in KEEPFAST_AGENTS_PATH, then PATH; one that is not there is skipped with that as its reason. Seen to pass with
codex 0.171.0, claude 2.1.197, opencode 1.18.33, pi 0.74.2 and gemini 0.61.0.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast.propose.agent import Usage
from keepfast.settings import agents_path
from keepfast.testing.model_script import Edit, Endless, HalfStream, MalformedToolCall, Refuse, Reply, Run, Say, Status, ToolCall
from keepfast.testing.model_server import ModelServer
from tests.agents.drivers import DRIVERS, Driver, Place, Ran, run

BEFORE, AFTER = "int a = 1;\nint b = 2;\n", "int a = 7;\nint b = 2;\n"
EDIT = Edit("kernel.c", "int a = 1;", "int a = 7;", usage=Usage(1200, 34, 200))
DONE = Say("Done.", usage=Usage(1300, 5, 1100))
TITLE = Say("A title", usage=Usage(11, 3))


class Turn:
    """A workspace and one CLI; `with_replies` is one headless turn against a model that says them."""

    def __init__(self, driver: Driver, program: str, folder: Path) -> None:
        self.driver, self.program = driver, program
        self.work, self.home = folder / "work", folder / "home"
        self.work.mkdir()
        self.home.mkdir()
        (self.work / "kernel.c").write_text(BEFORE)

    def with_replies(self, *replies: Reply, until_asked: bool = False) -> tuple[Ran, ModelServer]:
        with ModelServer(replies, aside=TITLE, repeat=until_asked) as server:
            ran = run(self.driver, self.program, Place(self.work, self.home, server.url), lambda: until_asked and bool(server.asked))
        assert server.problems == ()
        assert all(e.key for e in server.asked)
        return ran, server

    def text(self) -> str:
        return (self.work / "kernel.c").read_text()


@pytest.fixture(params=DRIVERS, ids=lambda d: d.name)
def turn(request: pytest.FixtureRequest, tmp_path: Path) -> Turn:
    driver: Driver = request.param
    program = shutil.which(driver.name, path=agents_path())
    if program is None:
        pytest.skip(f"`{driver.name}` is neither in KEEPFAST_AGENTS_PATH nor on PATH")
    return Turn(driver, program, tmp_path)


def edited_and_billed(turn: Turn, ran: Ran, server: ModelServer) -> None:
    """The edit is there, nothing else is, and the CLI's own output claims exactly what the model gave."""
    assert (ran.status, turn.text()) == (0, AFTER), ran.errors[-2000:]
    assert sorted(p.name for p in turn.work.iterdir()) == ["kernel.c"]
    assert server.left == 0
    assert turn.driver.bill(ran.output) == replace(server.usage(), requests=0)


def test_it_edits(turn: Turn) -> None:
    ran, server = turn.with_replies(EDIT, DONE)
    edited_and_billed(turn, ran, server)
    assert server.usage() == Usage(2500, 39, 1300, None, 2)


def test_it_runs_a_command(turn: Turn) -> None:
    edited_and_billed(turn, *turn.with_replies(Run("sed -i 's/a = 1/a = 7/' kernel.c"), DONE))


@pytest.mark.parametrize("broken", [MalformedToolCall(), ToolCall("no_such_tool")], ids=["malformed", "unknown"])
def test_it_goes_on_after_a_call_that_cannot_be_run(turn: Turn, broken: Reply) -> None:
    ran, server = turn.with_replies(broken, EDIT, DONE)
    edited_and_billed(turn, ran, server)
    first, second = server.asked[:2]
    assert second.messages > first.messages, "the model was told what was wrong"


@pytest.mark.parametrize("status", [Status(429, retry_after=1), Status(500)], ids=["429", "500"])
def test_it_asks_again_after_an_error(turn: Turn, status: Status) -> None:
    ran, server = turn.with_replies(status, EDIT, DONE)
    edited_and_billed(turn, ran, server)
    assert server.asked[0].messages == server.asked[1].messages


def test_half_a_stream(turn: Turn) -> None:
    """Most ask again. Gemini gives up: it says so by its exit status, and has edited nothing."""
    ran, server = turn.with_replies(HalfStream(), EDIT, DONE)
    if turn.driver.mends_half:
        return edited_and_billed(turn, ran, server)
    assert (ran.status, turn.text(), server.left) == (1, BEFORE, 2)
    return None


def test_half_a_call_is_not_run(turn: Turn) -> None:
    """A call that was cut off must leave nothing behind, whatever the CLI then does."""
    turn.with_replies(HalfStream(EDIT), Say("Nothing to do."))
    assert turn.text() == BEFORE


def test_a_refusal_edits_nothing_and_is_billed(turn: Turn) -> None:
    ran, server = turn.with_replies(Refuse())
    assert (turn.text(), server.left) == (BEFORE, 0)
    assert turn.driver.bill(ran.output) == replace(server.usage(), requests=0)


def test_it_can_be_ended_in_an_endless_answer(turn: Turn) -> None:
    ran, server = turn.with_replies(Endless(), until_asked=True)
    assert (ran.status, turn.text()) == (None, BEFORE)
    assert not any(e.delivered for e in server.asked)
