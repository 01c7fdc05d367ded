"""`keepfast mcp` as a client sees it: the SDK's own, over stdio, against the server's own process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.conftest import Call
from tests.mcp.kit import NAME, PATH, going, held, judge

pytest.importorskip("mcp.server.mcpserver", reason="the MCP SDK 2 is not installed")

from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from mcp import StdioServerParameters

TOOLS = {"brief", "files", "ideas", "history", "status", "add_idea", "try", "submit", "verdict"}
MOST_S = 120.0


async def text(client: Client, tool: str, **arguments: Any) -> str:
    found = await client.call_tool(tool, arguments)
    assert found.structured_content is None
    return f"{'ERROR ' if found.is_error else ''}{found.content[0].text}"  # type: ignore[union-attr]


def with_client(work: Callable[[Client], Awaitable[None]], *arguments: str) -> None:
    async def main() -> None:
        server = StdioServerParameters(command=sys.executable, args=["-m", "keepfast", "mcp", *arguments], env=environment())
        with anyio.fail_after(MOST_S):
            async with Client(stdio_client(server)) as client:
                await work(client)

    anyio.run(main)


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PYTHONPATH", "PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ}


def test_a_client_drives_a_run(root: Path, kernel: Path) -> None:
    async def work(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {t.name for t in tools} == TOOLS
        assert all(t.description for t in tools)
        reading = {t.name for t in tools if t.annotations and t.annotations.read_only_hint}
        assert {"try", "submit", "add_idea"} == TOOLS - reading
        assert "Call `brief` first" in (client.instructions or "")
        assert "## What you must not do" in await text(client, "brief")
        assert "The champion is experiment 1" in await text(client, "files")
        assert (await text(client, "add_idea", text="do it fast")).startswith("Idea 1 is added")
        assert "do it fast" in await text(client, "ideas")
        change = {PATH: kernel.read_text() + "/* fast */\n"}
        assert "It is right" in await text(client, "try", files=change)
        assert (await text(client, "submit", title="faster", files=change, idea=1, wait=True)).startswith("Experiment 2: keep")
        assert (await text(client, "verdict")).startswith("Experiment 2: keep")
        assert "faster" in await text(client, "history", last=1)
        assert "experiment 2" in await text(client, "status")

    with going(root, judge()):
        with_client(work, NAME)


def test_what_is_wrong_is_said_to_the_model(root: Path) -> None:
    async def work(client: Client) -> None:
        assert (await text(client, "submit", title="t")).startswith("ERROR Error executing tool submit: no editable file differs")
        assert (await text(client, "verdict", which="s-0")).startswith("Submission `s-0` has no verdict")
        assert (await text(client, "history", last="many")).startswith("ERROR ")
        assert (await text(client, "keep")).startswith("ERROR ")
        assert "square-1: running" in await text(client, "status"), "it goes on serving"

    with going(root, judge()):
        with_client(work, NAME)


def test_a_call_that_is_given_up_does_not_hold_the_server(root: Path, kernel: Path) -> None:
    late = threading.Event()
    by = judge(held(late))

    async def work(client: Client) -> None:
        with anyio.move_on_after(1.0) as gone:
            await text(client, "try")
        assert gone.cancelled_caught
        assert "square-1: running" in await text(client, "status")
        late.set()
        assert "It is right" in await text(client, "try")
        assert [a.verb for a in by.asked].count("try") == 1, "the same question was waited for"

    with going(root, by):
        kernel.write_text("fast\n")
        with_client(work, NAME)


def test_before_it_serves_it_says_what_is_wrong(root: Path, keepfast: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, why in ((("nowhere",), "nowhere"), ((NAME, "--proposer", "serch,mcp"), "Did you mean `search`?")):
        said = keepfast("mcp", *arguments)
        assert (said.code, said.out) == (2, "")
        assert why in said.err
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "keepfast.mcp.server", raising=False)
    said = keepfast("mcp", NAME)
    assert (said.code, said.out) == (2, "")
    assert "pip install 'keepfast[mcp]'" in said.err
