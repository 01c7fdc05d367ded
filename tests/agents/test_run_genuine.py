"""Each genuine CLI makes the softmax of the examples faster through `keepfast run`: kept, with its exact cost in the ledger.

The model is scripted, on loopback; the command line, the loop, the cage, the CLI and the judge are the real ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast import model
from keepfast.propose.agent import Usage
from keepfast.propose.chat.edits import Whole, render
from keepfast.testing.model_script import Edit, Say
from keepfast.testing.model_server import ModelServer
from tests.agents.running import FASTER, FASTER_TUNABLES, KERNEL, START, START_TUNABLES, TUNABLES, Ran, Stand, dollars, installed, section

EDITS = (
    Edit(KERNEL, START, FASTER, usage=Usage(1200, 834, 200)),
    Edit(TUNABLES, START_TUNABLES, FASTER_TUNABLES, usage=Usage(2150, 99, 1200)),
)
DONE = Say("IDEA: vector lanes\nIDEA: two rows at a time\nTitle: vector lanes", usage=Usage(2300, 35, 1100))
pytestmark = pytest.mark.usefixtures("walled")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def kept(stand: Stand, ran: Ran, server: ModelServer, name: str) -> model.Experiment:
    """The second experiment is a keep by `name`, and costs to the token what the model gave."""
    assert ran.status == 0, ran.output
    start, one = ran.experiments
    assert (one.verdict.reason, one.proposer, one.title) == (model.Reason.FASTER, name, "vector lanes"), ran.output
    assert one.verdict.gain is not None
    assert one.verdict.gain.high < -0.2
    assert stand.kept(ran) == FASTER
    assert (one.tokens, ran.spent[1], start.tokens) == (server.usage().tokens, server.usage().tokens, 0)
    assert (server.left, server.problems) == (0, ())
    assert [(i.text, i.author) for i in ran.ideas][:2] == [("vector lanes", "agent"), ("two rows at a time", "agent")]
    return one


@pytest.mark.parametrize("name", ["codex", "opencode", "claude", "gemini", "pi"])
def test_a_cli_makes_a_kernel_faster(name: str, tmp_path: Path, cache: Path) -> None:
    kind = installed(name)
    stand = Stand(tmp_path, cache)
    with ModelServer((*EDITS, DONE), aside=Say("A title")) as server:
        ran = stand.run("mine", section("mine", kind, server), "--experiments", "2", "--goal", "1.2")
    one = kept(stand, ran, server, "mine")
    assert one.source, "the version of the CLI"
    assert (one.dollars, ran.spent[0]) == (pytest.approx(dollars(server.usage())), pytest.approx(dollars(server.usage())))
    assert [t.outcome for t in ran.turns("mine")] == ["edited"]


def test_a_model_behind_an_api_makes_a_kernel_faster(tmp_path: Path, cache: Path) -> None:
    stand = Stand(tmp_path, cache)
    edits = render([Whole(KERNEL, FASTER), Whole(TUNABLES, FASTER_TUNABLES)])
    answer = Say(text=f"TITLE: vector lanes\nIDEA: vector lanes\nIDEA: two rows at a time\n\n{edits}")
    with ModelServer((answer,)) as server:
        name = f"chat:scripted@{server.url}/v1"
        ran = stand.run(name, "", "--experiments", "2", "--goal", "1.2")
    one = kept(stand, ran, server, name)
    assert one.source == "scripted"
    assert [t.dollars for t in ran.turns(name)] == [None], "nobody knows the price of this model"
