"""Against the scripted model server that ships: the bill is the server's, to the token, with faults among the answers."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from keepfast.propose.agent import Limits, Outcome, Turn, Usage
from keepfast.propose.chat import ChatAgent, named
from keepfast.propose.chat.talk import TOOL
from keepfast.testing.model_script import Endless, HalfStream, MalformedToolCall, Refuse, Reply, Say, Slow, Status, ToolCall
from keepfast.testing.model_server import ModelServer
from tests.propose.chat.talking import AFTER, GOOD, KEY, PROTOCOLS, job

both = pytest.mark.parametrize("protocol", PROTOCOLS)
FAULTS = (Status(code=429, retry_after=0.01), Status(code=500), Status(code=529), HalfStream(), HalfStream(clean=True))


def agent(server: ModelServer, protocol: str, **more: Any) -> ChatAgent:
    kind = "chat" if protocol == "chat" else "anthropic"
    options = msgspec.structs.replace(named(f"{kind}:m@{server.url}"), first_wait_s=0.01)
    return ChatAgent(options, key=lambda provider: KEY, **more)


def turn(protocol: str, *replies: Reply, seconds: float = 20.0, **more: Any) -> tuple[Turn, ModelServer]:
    """`more`: of the job."""
    with ModelServer(replies) as server:
        found = agent(server, protocol).turn(job(limits=Limits(seconds=seconds), **more))
        assert server.problems == ()
        assert found.usage.input_tokens >= server.usage().input_tokens
        return found, server


@both
def test_an_edit_and_its_bill(protocol: str) -> None:
    found, server = turn(protocol, Say(text=GOOD, usage=Usage(4321, 123, 1000)))
    assert (found.outcome, found.changed) == (Outcome.EDITED, (("kernel/k.c", AFTER),))
    assert (found.usage.input_tokens, found.usage.output_tokens, found.usage.cached_tokens) == (4321, 123, 1000)
    assert (server.exchanges[0].key, KEY in repr(server.exchanges)) == (True, False)


@both
def test_a_try_and_a_malformed_one(protocol: str) -> None:
    call = ToolCall(name=TOOL, arguments=msgspec.json.encode({"edits": GOOD}).decode())
    malformed = MalformedToolCall(name=TOOL)
    found, server = turn(protocol, malformed, call, Say(text="SUBMIT LAST TRY"), ask=lambda changed: "builds")
    assert (found.outcome, found.changed) == (Outcome.EDITED, (("kernel/k.c", AFTER),))
    assert "builds" in server.exchanges[2].body
    assert found.usage.tokens == server.usage().tokens


@both
def test_a_run_that_ends_does_not_wait_for_the_model(protocol: str) -> None:
    with ModelServer((Endless(every_s=0.02),)) as server:
        limits = Limits(seconds=600.0, ended=lambda: bool(server.exchanges))
        assert agent(server, protocol).turn(job(limits=limits)).outcome is Outcome.STOPPED


@both
def test_refused_and_endless_and_slow(protocol: str) -> None:
    assert turn(protocol, Refuse())[0].outcome is Outcome.REFUSED
    assert turn(protocol, Endless(every_s=0.02), seconds=1.5)[0].outcome is Outcome.TIMED_OUT
    assert turn(protocol, Slow(seconds=0.5, then=Say(text=GOOD)))[0].outcome is Outcome.EDITED


@both
def test_turns_with_faults_are_billed_to_the_token(protocol: str) -> None:
    """What `message_start` had counted before a stream broke is billed too; the server counts whole answers only."""
    chance = random.Random(4)
    turns = [(*(f for f in FAULTS if chance.random() < 0.3), Say(text=GOOD, usage=Usage(1000 + n, 50 + n, n))) for n in range(15)]
    replies = [reply for replies in turns for reply in replies]
    with ModelServer(replies) as server:
        found = [agent(server, protocol).turn(job()) for _ in turns]
        billed, asked = server.usage(), len(server.exchanges)
    assert {(t.outcome, t.changed) for t in found} == {(Outcome.EDITED, (("kernel/k.c", AFTER),))}
    assert asked == len(replies)
    lost = sum(isinstance(r, HalfStream) for r in replies) if protocol == "anthropic" else 0
    assert sum(t.usage.input_tokens for t in found) == billed.input_tokens + 1000 * lost
    assert sum(t.usage.cached_tokens for t in found) == billed.cached_tokens + 200 * lost
    assert sum(t.usage.output_tokens for t in found) - billed.output_tokens in range(50 * lost + 1)
