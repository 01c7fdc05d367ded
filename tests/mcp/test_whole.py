"""An agent outside drives a real run on real kernels: a wrong change is refused, a faster one is kept and meets the goal."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from keepfast.ledger import Ledger
from keepfast.repo import Repo
from tests.cli.conftest import Call, git
from tests.judge import tasks
from tests.mcp.kit import NAME, PATH

pytest.importorskip("mcp.server.mcpserver", reason="the MCP SDK 2 is not installed")

from mcp.client.client import Client

from tests.mcp.test_server import text, with_client

NOISE = ("machine", "ambiguous", "not-confirmed", "case-loss")
WRONG = tasks.looping(300).replace("+ 1.0f", "+ 2.0f")


class Driver(threading.Thread):
    """The client, beside the run. `heard`: what its tools said."""

    def __init__(self, root: Path) -> None:
        super().__init__(name="the agent outside")
        self.root, self.heard = root, dict[str, str]()

    def run(self) -> None:
        try:
            self._await()
            with_client(self._work, NAME)
        finally:
            with Ledger.open(self.root / ".keepfast") as ledger:
                ledger.post("stop")

    def _await(self) -> None:
        until = time.monotonic() + 600
        while time.monotonic() < until:
            with Ledger.open(self.root / ".keepfast", readonly=True) as ledger:
                run = ledger.latest()
                if run is not None and ledger.champion(run.id) is not None and ledger.holder() is not None:
                    return
            time.sleep(0.1)
        raise AssertionError("the run did not begin")

    async def _work(self, client: Client) -> None:
        self.heard["files"] = await text(client, "files")
        self.heard["tried"] = await text(client, "try", files={PATH: WRONG})
        self.heard["wrong"] = await text(client, "submit", title="two for one", files={PATH: WRONG}, wait=True)
        self.heard["faster"] = await text(client, "submit", title="a hundredth of the work", files={PATH: tasks.looping(3)}, wait=True)


@pytest.mark.usefixtures("calm", "walled")
def test_an_agent_outside_meets_the_goal(root: Path, kernel: Path, keepfast: Call) -> None:
    kernel.write_text(tasks.looping(300))  # so slow that the goal is met on a busy machine too
    git(root, "commit", "-qam", "slow")
    Ledger.open(Repo.find(root).ensure_state()).close()
    driver = Driver(root)
    driver.start()
    ran = keepfast("run", NAME, "--proposer", "mcp", "--experiments", "8", "--seed", "3")
    driver.join(700)
    assert not driver.is_alive()
    if ran.code == 5 or any(f"`{reason}`" in driver.heard.get("faster", "") for reason in NOISE):
        pytest.skip(f"this machine is too noisy to judge: {ran.err} {driver.heard}")
    assert "The champion is experiment 1" in driver.heard["files"]
    assert "reject: " in driver.heard["tried"]
    assert "case main: out[" in driver.heard["tried"]
    assert "Experiment 2: reject, `wrong`" in driver.heard["wrong"]
    assert "Experiment 3: keep, `faster`" in driver.heard["faster"]
    assert (ran.code, "goal met" in ran.out) == (0, True), ran.err
