"""When a run is started for an agent outside, and when it is left to the human."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from keepfast.cli.stand import standing
from keepfast.errors import UsageError
from keepfast.ledger import Ledger
from keepfast.mcp.starter import Starter
from keepfast.mcp.tools import Tools
from tests.mcp.kit import NAME, going, judge

WORDS = "import sys; open('words', 'w').write(' '.join(sys.argv[1:])); {}"


Fake = Callable[..., Starter]


@pytest.fixture
def fake() -> Iterator[Fake]:
    """fake(body): one whose `keepfast` writes down what it was called with, in the task's folder, and runs `body`."""
    made = list[Starter]()

    def make(body: str = "pass") -> Starter:
        made.append(Starter("search,mcp", (sys.executable, "-c", WORDS.format(body))))
        return made[-1]

    yield make
    for starter in made:
        starter.close()


def see(root: Path, starter: Starter) -> str:
    with standing(root / NAME) as stand:
        return starter.see_to_it(stand)


def words(root: Path) -> str:
    path = root / NAME / "words"
    until = time.monotonic() + 30
    while not path.exists() or not path.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    return path.read_text()


def finished(starter: Starter) -> None:
    assert starter._process is not None
    starter._process.wait(30)


def test_one_is_started_where_there_is_none(root: Path, fake: Fake) -> None:
    starter = fake("import os, time; [time.sleep(0.01) for _ in iter(lambda: os.path.exists('go'), True)]")
    assert see(root, starter).startswith("A run was started, in the background, as no run was going on")
    assert see(root, starter).startswith("The run is being prepared")
    assert words(root) == f"run {root / NAME} --proposer search,mcp --detach"
    (root / NAME / "go").touch()
    finished(starter)
    (root / ".keepfast").mkdir()
    (root / ".keepfast" / "run.log").write_text("judging\nthe machine is \x1b[31mbusy `now`\n")
    with pytest.raises(UsageError, match=r"ended while it was prepared, and said last: `judging the machine is \[31mbusy 'now'`"):
        see(root, starter)
    assert see(root, starter).startswith("A run was started"), "nothing was spent, so it may be tried again"
    finished(starter)


def test_what_a_failed_start_said_is_told_and_it_may_be_tried_again(root: Path, fake: Fake) -> None:
    starter = fake("sys.exit('the task is\\x1b no good')")
    see(root, starter)
    finished(starter)
    with pytest.raises(UsageError, match="no run could be started: `the task is no good`"):
        see(root, starter)
    assert see(root, starter).startswith("A run was started")
    finished(starter)


def test_one_that_was_stopped_goes_on(root: Path, fake: Fake) -> None:
    with going(root, judge()):
        assert see(root, fake()) == ""
    starter = fake()
    assert see(root, starter).startswith("Run square-1 goes on, in the background")
    finished(starter)
    assert words(root).endswith("--detach --resume")


@pytest.mark.parametrize("state", ["goal", "budget", "deck-done"])
def test_one_that_ended_is_the_human_s(root: Path, fake: Fake, state: str) -> None:
    """A budget would be none if an agent could begin another run."""
    with going(root, judge()) as run:
        pass
    with Ledger.open(root / ".keepfast") as ledger:
        ledger.end(run, state)
    with pytest.raises(UsageError, match=f"run square-1 of this task has ended: {state}; no further one is begun"):
        see(root, fake())
    assert not (root / NAME / "words").exists()
    tool = Tools(root / NAME, fake(), anyio.sleep, anyio.to_thread.run_sync)
    assert tool.brief().startswith("No run is going on: run square-1 of this task has ended")
    assert "The champion is experiment 1" in tool.files()
    with pytest.raises(UsageError, match="no further one is begun"):
        anyio.run(tool.try_)


def test_one_that_is_stopped_meanwhile_is_not_started_again(root: Path, fake: Fake) -> None:
    with going(root, judge()):
        pass
    starter = fake()
    see(root, starter)
    finished(starter)
    with pytest.raises(UsageError, match=r"run square-1 has ended \(stopped\)"):
        see(root, starter)


def test_what_is_being_prepared_is_waited_for(root: Path, fake: Fake) -> None:
    with Ledger.open(root / ".keepfast") as ledger, ledger.hold("square-1"):
        assert "takes no questions yet" in see(root, fake())
    assert not (root / NAME / "words").exists()
