"""The agent of keepfast around genuine CLIs: what `Turn` says must be what the scripted model gave and did.

Skipped for each CLI that is neither in KEEPFAST_AGENTS_PATH nor on PATH.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.model import File
from keepfast.propose.agent import Changed, Job, Limits, Outcome, Turn, Usage
from keepfast.propose.command import named
from keepfast.propose.command.agent import CommandAgent, Setup
from keepfast.propose.command.base import Options
from keepfast.propose.command.cage import find_cage
from keepfast.settings import agents_path
from keepfast.testing.model_script import AskPermission, Edit, Endless, HalfStream, MalformedToolCall, Refuse, Reply, Run, Say, Status
from keepfast.testing.model_server import ModelServer

BEFORE, AFTER = b"int a = 1;\nint b = 2;\n", b"int a = 7;\nint b = 2;\n"
EDIT = Edit("kernel.c", "int a = 1;", "int a = 7;", usage=Usage(1200, 34, 200))
DONE = Say("Seven is better.\nTitle: a is 7 now", usage=Usage(1300, 5, 1100))
MODELS = {"claude": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro", "codex": "scripted"}
UNDER_V1 = ("codex", "opencode", "pi")
JOB = Job((File("kernel.c", BEFORE),), (), "Make kernel.c faster.", limits=Limits(seconds=90.0), editable=("kernel.c",))


class Agent:
    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        try:
            self.cage = find_cage(agents_path())
        except MachineError as error:
            pytest.skip(error.what)

    def turn(self, *replies: Reply, job: Job = JOB, repeat: bool = False) -> tuple[Turn, ModelServer]:
        with ModelServer(replies, aside=Say("A title"), repeat=repeat) as server:
            url = server.url + ("/v1" if self.name in UNDER_V1 else "")
            options = Options(model=MODELS.get(self.name, "stub/scripted"), base_url=url)
            turn = CommandAgent(named(self.name), Setup(self.folder, self.cage), options).turn(job)
        assert server.problems == ()
        assert turn.version, "the genuine CLI says its version"
        return turn, server


@pytest.fixture(params=["codex", "claude", "opencode", "pi", "gemini"])
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Agent:
    name: str = request.param
    if shutil.which(name, path=agents_path()) is None:
        pytest.skip(f"`{name}` is neither in KEEPFAST_AGENTS_PATH nor on PATH")
    return Agent(name, tmp_path / "agent")


def tokens(usage: Usage) -> Usage:
    return replace(usage, dollars=None, requests=0)


def edited(turn: Turn, server: ModelServer) -> None:
    assert (turn.outcome, turn.changed) == (Outcome.EDITED, (("kernel.c", AFTER),)), turn
    assert (turn.title, server.left) == ("a is 7 now", 0)
    assert tokens(turn.usage) == tokens(server.usage())


def test_an_edit_is_a_turn_with_its_bill(agent: Agent) -> None:
    edited(*agent.turn(EDIT, DONE))


@pytest.mark.parametrize(
    "first",
    [MalformedToolCall(), Status(429, retry_after=1), Status(500), HalfStream()],
    ids=["malformed", "429", "500", "half"],
)
def test_what_the_cli_mends_itself_is_no_outcome(agent: Agent, first: Reply) -> None:
    turn, server = agent.turn(first, EDIT, DONE)
    if agent.name == "gemini" and isinstance(first, HalfStream):
        assert (turn.outcome, turn.changed, tokens(turn.usage)) == (Outcome.CRASHED, (), Usage())
        return
    edited(turn, server)


def test_a_file_that_may_not_be_edited_is_not_read_back(agent: Agent) -> None:
    turn, server = agent.turn(Run("echo no > other.c"), DONE)
    assert (turn.outcome, turn.changed) == (Outcome.NOTHING, ())
    assert tokens(turn.usage) == tokens(server.usage())


def test_the_judge_is_asked_within_the_turn(agent: Agent) -> None:
    asked = list[Changed]()

    def ask(changed: Changed) -> str:
        asked.append(changed)
        return "SEVEN IS FAST"

    turn, server = agent.turn(EDIT, Run("keepfast try"), DONE, job=replace(JOB, ask=ask))
    edited(turn, server)
    assert asked == [(("kernel.c", AFTER),)]
    assert any("SEVEN IS FAST" in e.body for e in server.exchanges)


def test_a_key_that_is_refused_is_said(agent: Agent) -> None:
    turn, _ = agent.turn(Status(401, text="invalid api key"), repeat=True)
    assert (turn.outcome, turn.changed) == (Outcome.AUTHENTICATION, ())


def test_a_refusal_is_said(agent: Agent) -> None:
    turn, server = agent.turn(Refuse("I can't help with that."))
    assert turn.changed == ()
    assert turn.outcome in (Outcome.REFUSED, Outcome.NOTHING), turn  # Codex says nothing at all of it
    assert tokens(turn.usage) == tokens(server.usage())


def test_a_limit_for_hours_is_not_waited_for(agent: Agent) -> None:
    job = replace(JOB, limits=Limits(seconds=30.0))
    turn, _ = agent.turn(Status(429, retry_after=7200, text="rate limit reached"), job=job, repeat=True)
    assert (turn.outcome, turn.changed) == (Outcome.RATE_LIMITED, ())


def test_a_question_to_the_user_is_not_waited_for(agent: Agent) -> None:
    """Nobody answers at night: the turn ends by itself, without an edit."""
    turn, server = agent.turn(AskPermission(), Say("Then I shall wait."))
    assert (turn.changed, tokens(turn.usage)) == ((), tokens(server.usage()))
    assert turn.outcome in (Outcome.PERMISSION, Outcome.NOTHING), turn


def test_money_ends_a_turn_half_way(agent: Agent) -> None:
    """Claude Code tells dollars while it works; the others tell them, or tokens, when it is over."""
    if agent.name != "claude":
        pytest.skip(f"{agent.name} does not tell dollars of an unknown model while it works")
    dear = replace(EDIT, usage=Usage(100_000, 50_000))
    turn, server = agent.turn(dear, dear, DONE, job=replace(JOB, limits=Limits(seconds=90.0, dollars=0.5)))
    assert (turn.outcome, turn.changed) == (Outcome.OVER_BUDGET, ())
    assert server.left > 0


def test_an_endless_answer_ends_with_the_time(agent: Agent) -> None:
    turn, _ = agent.turn(Endless(), job=replace(JOB, limits=Limits(seconds=12.0)), repeat=True)
    assert (turn.outcome, turn.changed) == (Outcome.TIMED_OUT, ())
