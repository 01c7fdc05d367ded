"""The scripted model server: each wire format read back by a client of its own, what breaks, and who may ask."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from keepfast.propose.agent import Usage
from keepfast.testing import model_tools
from keepfast.testing.model_script import (
    AskPermission,
    Edit,
    Endless,
    HalfStream,
    MalformedToolCall,
    Refuse,
    Reply,
    Run,
    Say,
    Slow,
    Status,
    ToolCall,
)
from keepfast.testing.model_server import OVER, ModelServer

USAGE = Usage(input_tokens=1234, output_tokens=56, cached_tokens=34)
EDIT = Edit("kernel.c", "int a = 1;", "int a = 7;", usage=USAGE)
FORMATS = ("chat", "responses", "messages", "gemini")
STREAMS = (False, True)


def schema(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {n: {"type": "string"} for n in names}, "required": list(names)}


TOOLS = {"edit": schema("path", "oldText", "newText"), "bash": schema("command"), "write": schema("path", "content")}


class Client:
    """Says the least that each format wants, and reads text, calls and usage back as the vendors document them."""

    def __init__(self, format: str, stream: bool) -> None:
        self.format, self.stream = format, stream

    def request(self, tools: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        named = list((TOOLS if tools is None else tools).items())
        ask: dict[str, Any] = {"model": "m", "stream": self.stream}
        if self.format == "chat":
            nested = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in named]
            ask |= {"messages": [{"role": "user", "content": "hi"}], "tools": nested, "stream_options": {"include_usage": True}}
            return "/v1/chat/completions", ask
        if self.format == "responses":
            return "/v1/responses", ask | {"input": "hi", "tools": [{"type": "function", "name": n, "parameters": s} for n, s in named]}
        if self.format == "messages":
            ask |= {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10}
            return "/v1/messages?beta=true", ask | {"tools": [{"name": n, "input_schema": s} for n, s in named]}
        verb = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
        declared = [{"name": n, "parametersJsonSchema": s} for n, s in named]
        return f"/v1beta/models/m:{verb}", {"contents": [{"parts": [{"text": "hi"}]}], "tools": [{"functionDeclarations": declared}]}

    def ask(self, server: ModelServer, tools: dict[str, Any] | None = None) -> httpx.Response:
        path, body = self.request(tools)
        return httpx.post(server.url + path, json=body, headers={"x-api-key": "secret"}, timeout=10, trust_env=False)

    def read(self, answer: httpx.Response) -> tuple[str, list[tuple[str, str]], Usage]:
        """Text, calls and usage."""
        assert answer.status_code == 200, answer.text
        kind = "text/event-stream" if self.stream else "application/json"
        assert answer.headers["content-type"] == kind
        return getattr(self, f"{self.format}_{'stream' if self.stream else 'whole'}")(answer)

    def chat_whole(self, answer: httpx.Response) -> tuple[str, list[tuple[str, str]], Usage]:
        said = answer.json()
        message, u = said["choices"][0]["message"], said["usage"]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
        assert said["choices"][0]["finish_reason"] == ("tool_calls" if calls else "content_filter" if message["refusal"] else "stop")
        cached = u["prompt_tokens_details"]["cached_tokens"]
        return message["content"] or message["refusal"] or "", calls, Usage(u["prompt_tokens"], u["completion_tokens"], cached)

    def chat_stream(self, answer: httpx.Response) -> tuple[str, list[tuple[str, str]], Usage]:
        assert answer.text.endswith("data: [DONE]\n\n")
        text, calls, usage = "", {}, Usage()
        for event in events(answer):
            for choice in event["choices"]:
                text += choice["delta"].get("content") or choice["delta"].get("refusal") or ""
                for call in choice["delta"].get("tool_calls", []):
                    name, so_far = calls.get(call["index"], (call["function"].get("name"), ""))
                    calls[call["index"]] = (name, so_far + call["function"]["arguments"])
            if u := event.get("usage"):
                usage = Usage(u["prompt_tokens"], u["completion_tokens"], u["prompt_tokens_details"]["cached_tokens"])
        return text, list(calls.values()), usage

    def responses_whole(self, answer: httpx.Response) -> tuple[str, list[tuple[str, str]], Usage]:
        return self.response(answer.json())

    def responses_stream(self, answer: httpx.Response) -> tuple[str, list[tuple[str, str]], Usage]:
        seen = list(events(answer))
        assert [e["sequence_number"] for e in seen] == list(range(len(seen)))
        assert [seen[0]["type"], seen[-1]["type"]] == ["response.created", "response.completed"]
        text, calls, usage = self.response(seen[-1]["response"])
        assert "".join(e["delta"] for e in seen if e["type"].endswith(".delta")) == text + "".join(c[1] for c in calls)
        done = [e["item"] for e in seen if e["type"] == "response.output_item.done"]
        assert done == seen[-1]["response"]["output"]
        return text, calls, usage

    def response(self, said: dict[str, Any]) -> tuple[str, list[tuple[str, str]], Usage]:
        parts = [p for item in said["output"] if item["type"] == "message" for p in item["content"]]
        calls = [(i["name"], i.get("arguments") or i.get("input")) for i in said["output"] if i["type"].endswith("_call")]
        u = said["usage"]
        usage = Usage(u["input_tokens"], u["output_tokens"], u["input_tokens_details"]["cached_tokens"])
        return "".join(p.get("text") or p.get("refusal") for p in parts), calls, usage

    def messages_whole(self, answer: httpx.Response) -> tuple[str, list[tuple[str, str]], Usage]:
        said = answer.json()
        calls = [(b["name"], json.dumps(b["input"])) for b in said["content"] if b["type"] == "tool_use"]
        assert said["stop_reason"] in (("tool_use",) if calls else ("end_turn", "refusal"))
        return "".join(b.get("text", "") for b in said["content"]), calls, anthropic(said["usage"])

    def messages_stream(self, answer: httpx.Response) -> tuple[str, list[tuple[str, str]], Usage]:
        seen = list(events(answer))
        assert [seen[0]["type"], seen[-1]["type"]] == ["message_start", "message_stop"]
        assert answer.text.startswith("event: message_start\ndata: ")
        blocks: dict[int, list[str]] = {}
        for event in seen:
            if event["type"] == "content_block_start":
                blocks[event["index"]] = [event["content_block"].get("name", ""), ""]
            if event["type"] == "content_block_delta":
                blocks[event["index"]][1] += event["delta"].get("text") or event["delta"].get("partial_json") or ""
        assert sum(e["type"] == "content_block_stop" for e in seen) == len(blocks)
        usage = next(e["usage"] for e in seen if e["type"] == "message_delta")
        text = "".join(t for name, t in blocks.values() if not name)
        return text, [(name, t) for name, t in blocks.values() if name], anthropic(usage)

    def gemini_whole(self, answer: httpx.Response) -> tuple[str, list[tuple[str, str]], Usage]:
        return gemini([answer.json()])

    def gemini_stream(self, answer: httpx.Response) -> tuple[str, list[tuple[str, str]], Usage]:
        return gemini(list(events(answer)))


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def anthropic(u: dict[str, int]) -> Usage:
    cached = u["cache_read_input_tokens"]
    return Usage(u["input_tokens"] + cached, u["output_tokens"], cached)


def gemini(said: list[dict[str, Any]]) -> tuple[str, list[tuple[str, str]], Usage]:
    parts = [p for s in said for p in s["candidates"][0]["content"]["parts"]]
    calls = [(p["functionCall"]["name"], json.dumps(p["functionCall"]["args"])) for p in parts if "functionCall" in p]
    assert said[-1]["candidates"][0]["finishReason"] in ("STOP", "SAFETY")
    u = said[-1]["usageMetadata"]
    assert u["totalTokenCount"] == u["promptTokenCount"] + u["candidatesTokenCount"]
    usage = Usage(u["promptTokenCount"], u["candidatesTokenCount"], u["cachedContentTokenCount"])
    return "".join(p.get("text", "") for p in parts), calls, usage


@pytest.fixture(params=[(f, s) for f in FORMATS for s in STREAMS], ids=lambda p: f"{p[0]}-{'stream' if p[1] else 'whole'}")
def client(request: pytest.FixtureRequest) -> Client:
    return Client(*request.param)


def test_each_format_carries_words_calls_and_usage(client: Client) -> None:
    words = "Grüße: " + "a long answer, " * 30
    with ModelServer((Say(words, usage=USAGE), EDIT, Run("make", usage=Usage(9, 8, 7)), ToolCall("x", '{"n": 1}'))) as server:
        assert client.read(client.ask(server)) == (words, [], USAGE)
        text, [(name, arguments)], usage = client.read(client.ask(server))
        assert (text, name, usage) == ("", "edit", USAGE)
        assert json.loads(arguments) == {"path": "kernel.c", "oldText": "int a = 1;", "newText": "int a = 7;"}
        _, [(name, arguments)], usage = client.read(client.ask(server))
        assert (name, json.loads(arguments), usage) == ("bash", {"command": "make"}, Usage(9, 8, 7))
        _, [(name, arguments)], _ = client.read(client.ask(server))
        assert (name, json.loads(arguments)) == ("x", {"n": 1})
        assert (server.left, server.problems) == (0, ())
        assert server.usage() == Usage(1234 * 2 + 9 + 1000, 56 * 2 + 8 + 50, 34 * 2 + 7 + 200, None, 4)


def test_a_refusal_is_what_the_format_has_for_it(client: Client) -> None:
    with ModelServer((Refuse("No, I won't."),)) as server:
        answer = client.ask(server)
        assert client.read(answer)[0] == "No, I won't."
        marks = {"chat": '"content_filter"', "responses": '"type":"refusal"', "messages": '"refusal"', "gemini": '"SAFETY"'}
        assert marks[client.format] in answer.text


def test_a_malformed_call_is_broken_where_it_can_be(client: Client) -> None:
    with ModelServer((MalformedToolCall(), MalformedToolCall("bash", "][")), aside=Say("not used")) as server:
        _, [(name, arguments)], _ = client.read(client.ask(server))
        assert name == "edit"
        if client.format == "gemini" or (client.format, client.stream) == ("messages", False):
            assert json.loads(arguments) == {"malformed": MalformedToolCall().arguments}
        else:
            assert arguments == MalformedToolCall().arguments
        assert client.read(client.ask(server))[1][0][0] == "bash"


@pytest.mark.parametrize(("code", "wait"), [(429, 2.0), (500, None), (529, 0.5), (401, None)])
def test_an_error_has_its_status_and_its_wait(client: Client, code: int, wait: float | None) -> None:
    with ModelServer((Status(code, wait, "slower please"), Say("now"))) as server:
        answer = client.ask(server)
        assert (answer.status_code, answer.headers.get("retry-after")) == (code, None if wait is None else f"{wait:g}")
        assert answer.json()["error"]["message"] == "slower please"
        assert server.usage() == Usage()
        assert client.read(client.ask(server))[0] == "now"
        assert [e.delivered for e in server.exchanges] == [False, True]


def test_errors_are_named_as_the_vendors_name_them() -> None:
    named = {"chat": "rate_limit_exceeded", "responses": "rate_limit_exceeded", "messages": "rate_limit_error"}
    with ModelServer((Status(429, 3),), repeat=True) as server:
        for format, kind in named.items():
            assert Client(format, True).ask(server).json()["error"]["type"] == kind
        error = Client("gemini", True).ask(server).json()["error"]
        assert (error["status"], error["details"][0]["retryDelay"]) == ("RESOURCE_EXHAUSTED", "3s")
    with ModelServer((Status(529),)) as server:
        assert Client("messages", False).ask(server).json()["error"]["type"] == "overloaded_error"


def test_half_an_answer_breaks_off(client: Client) -> None:
    with ModelServer((HalfStream(EDIT), HalfStream(Say("word " * 30), clean=True))) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            client.ask(server)
        answer = client.ask(server)  # as if it were whole
        assert answer.status_code == 200
        assert "word" in answer.text
        assert not any(end in answer.text for end in ("[DONE]", "response.completed", "message_stop", "finishReason"))
        assert server.usage() == Usage()
        assert server.left == 0


def test_slow_takes_its_time(client: Client) -> None:
    with ModelServer((Slow(0.3, EDIT),)) as server:
        before = time.monotonic()
        _, calls, usage = client.read(client.ask(server))
        assert time.monotonic() - before >= 0.28
        assert (calls[0][0], usage) == ("edit", USAGE)


def test_endless_ends_with_the_client(client: Client) -> None:
    path, body = client.request()
    with ModelServer((Endless(0.01), Say("next", usage=USAGE))) as server:
        if client.stream:
            with httpx.stream("POST", server.url + path, json=body, timeout=5, trust_env=False) as answer:
                lines = (line for line in answer.iter_lines() if "and " in line)
                assert len({next(lines) for _ in range(20)}) == 20
        else:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(server.url + path, json=body, timeout=0.2, trust_env=False)
        while not server.exchanges:  # a busy server may meet it when it has gone
            time.sleep(0.01)
        assert client.read(client.ask(server))[0] == "next"
        assert server.usage() == Usage(1234, 56, 34, None, 1)


def test_closing_waits_for_nobody() -> None:
    for reply in (Endless(), Slow(60), Say("kept alive")):
        server = ModelServer((reply,))
        with server:
            path, body = Client("chat", True).request()
            asking = threading.Thread(target=give_up, args=(server.url + path, body))
            asking.start()
            while not server.exchanges:
                time.sleep(0.01)
            before = time.monotonic()
        assert time.monotonic() - before < 30
        asking.join(30)
        assert not asking.is_alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url, trust_env=False)


def give_up(url: str, body: dict[str, Any]) -> None:
    try:
        httpx.post(url, json=body, timeout=60, trust_env=False)
    except httpx.HTTPError:
        return


@pytest.mark.parametrize("ask", ["AskUserQuestion", "question", ""])
def test_permission_is_asked_with_the_tool_for_it_or_in_words(ask: str) -> None:
    offers = tuple(model_tools.Offer(n) for n in ("bash", ask) if n)
    answer = model_tools.answer(AskPermission("May I?"), offers)
    assert (answer.text, [c.name for c in answer.calls]) == (("", [ask]) if ask else ("May I?", []))
    assert not ask or json.loads(answer.calls[0].arguments)["questions"][0]["question"] == "May I?"


def offer(name: str, *names: str, needed: tuple[str, ...] | None = None) -> model_tools.Offer:
    properties = {n: model_tools.Property("string") for n in names}
    return model_tools.Offer(name, model_tools.Schema(properties, names if needed is None else needed))


CLAUDE = (offer("Bash", "command", "description", needed=("command",)), offer("Edit", "file_path", "old_string", "new_string"))
CLAUDE = (*CLAUDE, offer("Read", "file_path", "limit", needed=("file_path",)))
CODEX = (offer("exec_command", "cmd", "justification", "workdir", needed=("cmd",)), offer("write_stdin", "session_id"))
OPENCODE = (offer("bash", "command", "description"), offer("edit", "filePath", "oldString", "newString", "replaceAll", needed=()))
GEMINI = (offer("run_shell_command", "command"), offer("replace", "file_path", "instruction", "old_string", "new_string"))
PAIR = model_tools.Schema({"oldText": model_tools.Property("string"), "newText": model_tools.Property("string")})
PI = (model_tools.Offer("edit", model_tools.Schema({"path": model_tools.Property(), "edits": model_tools.Property("array", PAIR)})),)


@pytest.mark.parametrize(
    ("offers", "calls"),
    [
        (
            CLAUDE,
            [
                ("Read", {"file_path": "kernel.c"}),
                ("Edit", {"file_path": "kernel.c", "old_string": "int a = 1;", "new_string": "int a = 7;"}),
            ],
        ),
        (CODEX, [("exec_command", {"cmd": model_tools.sed(EDIT)})]),
        (OPENCODE, [("edit", {"filePath": "kernel.c", "oldString": "int a = 1;", "newString": "int a = 7;"})]),
        (
            GEMINI,
            [
                (
                    "replace",
                    {"file_path": "kernel.c", "instruction": "Edits a file", "old_string": "int a = 1;", "new_string": "int a = 7;"},
                )
            ],
        ),
        (PI, [("edit", {"path": "kernel.c", "edits": [{"oldText": "int a = 1;", "newText": "int a = 7;"}]})]),
    ],
    ids=["claude", "codex", "opencode", "gemini", "pi"],
)
def test_an_edit_is_a_call_of_the_tool_that_is_offered(offers: tuple[model_tools.Offer, ...], calls: list[tuple[str, Any]]) -> None:
    answer = model_tools.answer(EDIT, offers)
    assert [(c.name, json.loads(c.arguments)) for c in answer.calls] == calls


def test_codex_with_its_patch_tool_gets_a_patch() -> None:
    tools = [{"type": "custom", "name": "apply_patch", "format": {}}, {"type": "namespace", "name": "n", "tools": [{"name": "inner"}]}]
    body = {"model": "m", "stream": True, "input": [{}, {}], "tools": [*tools, {"type": "web_search"}]}
    with ModelServer((EDIT, Edit("new.c", "", "int c;\n"))) as server:
        for first in ("Update File: kernel.c\n@@\n-int a = 1;\n+int a = 7;", "Add File: new.c\n+int c;"):
            answer = httpx.post(server.url + "/v1/responses", json=body, trust_env=False)
            _, [(name, patch)], _ = Client("responses", True).read(answer)
            assert (name, patch) == ("apply_patch", f"*** Begin Patch\n*** {first}\n*** End Patch\n")
        assert (server.exchanges[0].tools, server.exchanges[0].messages) == (("apply_patch", "inner", "web_search"), 2)


def test_a_shell_that_takes_words_gets_words() -> None:
    shell = model_tools.Offer("shell", model_tools.Schema({"command": model_tools.Property("array")}, ("command",)))
    assert json.loads(model_tools.answer(Run("ls"), (shell,)).calls[0].arguments) == {"command": ["bash", "-c", "ls"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [("a[0] = b*2; // x/y", "a['k'] = \\n & $HOME / 2;"), ("one\ntwo.^$", "1\n\n2"), ("\\(x\\)", "`y`"), ("", "whole\n'file'\n")],
)
def test_an_edit_by_shell_changes_what_it_says_and_fails_otherwise(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "a file.c"
    path.write_text(f"before\n{old}\nafter\n{old}\n")
    command = model_tools.sed(Edit(str(path), old, new))
    subprocess.run(["sh", "-c", command], check=True)
    assert path.read_text() == (f"before\n{new}\nafter\n{old}\n" if old else new)
    if old:
        path.write_text("something else\n")
        assert subprocess.run(["sh", "-c", command], check=False).returncode == 1
        assert path.read_text() == "something else\n"


def test_what_cannot_be_done_is_said(client: Client) -> None:
    odd = {"edit": schema("path", "mystery")}
    with ModelServer((EDIT, Run("ls"))) as server:
        assert client.ask(server, odd).status_code == 400
        assert client.ask(server, {}).status_code == 400
        assert client.ask(server).json()["error"]["message"] == OVER.text
        assert server.problems[0] == "the tool edit needs mystery, which has no known meaning"
        assert server.problems[1].endswith("is among the tools offered: none")
        assert server.problems[2] == OVER.text


def test_requests_without_tools_may_be_asides() -> None:
    with ModelServer((Say("the work", usage=USAGE),), aside=Say("a title", usage=Usage(5, 2))) as server:
        client = Client("chat", True)
        assert client.read(client.ask(server, {}))[0] == "a title"
        assert client.read(client.ask(server))[0] == "the work"
        assert client.read(client.ask(server, {}))[0] == "a title"
        assert (server.usage(), server.usage(aside=True)) == (Usage(1234, 56, 34, None, 1), Usage(10, 4, 0, None, 2))
        assert [e.reply for e in server.asked] == [Say("the work", usage=USAGE)]


def test_repeat_says_the_last_again() -> None:
    with ModelServer((Say("one"), Say("two")), repeat=True) as server:
        client = Client("messages", True)
        assert [client.read(client.ask(server))[0] for _ in range(4)] == ["one", "two", "two", "two"]
        assert (server.left, server.usage().requests) == (0, 4)


def test_a_chat_stream_has_usage_only_for_who_asks() -> None:
    with ModelServer((Say("hi"),)) as server:
        path, body = Client("chat", True).request()
        answer = httpx.post(server.url + path, json=body | {"stream_options": None}, trust_env=False)
        assert '"usage"' not in answer.text
        assert answer.text.endswith("data: [DONE]\n\n")


def test_the_record_holds_no_key() -> None:
    secret = {"authorization": "Bearer s3cret", "x-api-key": "s3cret", "x-goog-api-key": "s3cret", "cookie": "s3cret", "x-mine": "seen"}
    with ModelServer((Say("hi"),)) as server:
        path, body = Client("gemini", False).request()
        httpx.post(f"{server.url}{path}?key=s3cret", json=body, headers=secret, trust_env=False)
        [exchange] = server.exchanges
        assert "s3cret" not in repr(exchange)
        assert (exchange.key, dict(exchange.headers)["x-mine"]) == (True, "seen")
        assert (exchange.path, exchange.model, exchange.stream) == ("/v1beta/models/m:generateContent", "m", False)
        assert (exchange.tools, exchange.messages, exchange.size_bytes) == (("edit", "bash", "write"), 1, len(exchange.body))


def test_addresses_without_a_model() -> None:
    with ModelServer(()) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        assert client.get("/v1/models").json()["data"][0]["id"] == "scripted"
        assert client.head("/").status_code == 404
        assert client.post("/v1/other", json={}).status_code == 404
        assert client.post("/v1/messages/count_tokens", json={"model": "m", "messages": []}).json()["input_tokens"] == 1000
        assert client.post("/v1beta/models/m:countTokens", json={}).json()["totalTokens"] == 1000
        assert client.post("/v1/responses", content=b"{").status_code == 400
        assert [e.reply for e in server.exchanges] == [None] * 6
        assert len(server.problems) == 1
        assert server.problems[0].startswith("not a responses request")
        assert server.asked == ()


def test_only_this_machine_and_only_under_its_own_name() -> None:
    with ModelServer((Say("hi"),)) as server:
        address = urlsplit(server.url)
        assert (address.hostname, (address.port or 0) > 0) == ("127.0.0.1", True)
        path, body = Client("chat", False).request()
        answer = httpx.post(server.url + path, json=body, headers={"host": "example.org"}, trust_env=False)
        assert answer.status_code == 404  # a web page that lets its name point here
        assert server.left == 1
        for own in others():
            with pytest.raises((ConnectionRefusedError, TimeoutError)):
                socket.create_connection((own, address.port), timeout=1).close()


def others() -> list[str]:
    """This machine's addresses that others can reach."""
    try:
        found = {a[4][0] for a in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    except OSError:
        return []
    return [a for a in map(str, found) if not a.startswith("127.")]


def test_many_at_once_each_get_their_own() -> None:
    replies: list[Reply] = [Say(f"answer {i}", usage=Usage(i, 1)) for i in range(12)]
    with ModelServer(replies) as server:
        client, heard = Client("responses", True), []
        threads = [threading.Thread(target=lambda: heard.append(client.read(client.ask(server))[0])) for _ in replies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(heard) == sorted(f"answer {i}" for i in range(12))
        assert server.usage() == Usage(66, 12, 0, None, 12)


def test_a_connection_may_be_used_again() -> None:
    with ModelServer((Say("one"), Status(500), Say("two"))) as server:
        address = urlsplit(server.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
        path, body = Client("chat", True).request()
        statuses = []
        for _ in range(3):
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            statuses.append((answer.status, b"data" in answer.read()))
        connection.close()
        assert statuses == [(200, True), (500, False), (200, True)]


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with ModelServer((Status(500), EDIT)) as server:
        for _ in range(2):
            Client("messages", True).ask(server)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
