"""Servers for tests: answers of both protocols as bytes, a transport that plays them, and a job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import httpx
import msgspec

from keepfast.model import File
from keepfast.propose.agent import Job, Limits, Page, Usage
from keepfast.propose.chat import ChatAgent, ChatOptions, named
from keepfast.testing.clock import FakeClock

KEY = "sk-test-0123456789abcdef"
KERNEL = b"int f(int a) {\n    return a + 1;\n}\n"
GOOD = "TITLE: add two\n<<<<<<< SEARCH kernel/k.c\n    return a + 1;\n=======\n    return a + 2;\n>>>>>>> REPLACE\n"
AFTER = KERNEL.replace(b"+ 1", b"+ 2")
CHAT = "chat:some/model@http://model.test:8000/v1"
ANTHROPIC = "anthropic:claude-x"
PROTOCOLS = ("chat", "anthropic")


def job(**more: Any) -> Job:
    given: dict[str, Any] = {
        "files": (File("kernel/k.c", KERNEL),),
        "readable": (File("reference.py", b"def f(a):\n    return a + 1\n"),),
        "brief": "Make f faster.",
        "pages": (Page("hopper.md", "An H200 has 132 SMs.\n"),),
        "limits": Limits(seconds=600.0),
        "editable": ("kernel/**",),
    }
    return Job(**(given | more))


def options(protocol: str, **more: Any) -> ChatOptions:
    return msgspec.structs.replace(named(CHAT if protocol == "chat" else ANTHROPIC), **more)


class Server:
    """Plays answers in order, the last one for ever, and keeps what was sent."""

    def __init__(self, *answers: httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.clock, self.times = FakeClock(), list[float]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(request)
        self.times.append(self.clock.now)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else copied(answer)

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(r.content) for r in self.requests]

    def waits(self) -> list[float]:
        """Seconds between a request and the next."""
        return [after - before for before, after in pairwise(self.times)]

    def agent(self, protocol: str = "chat", clock: FakeClock | None = None, **more: Any) -> ChatAgent:
        own = {k: more.pop(k) for k in ("price", "key", "chance") if k in more}
        given: dict[str, Any] = {"key": lambda provider: KEY, "chance": lambda: 0.5} | own
        self.clock = clock or self.clock
        return ChatAgent(options(protocol, **more), clock=self.clock, transport=httpx.MockTransport(self), **given)


def copied(answer: httpx.Response) -> httpx.Response:
    return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def price(model: str, usage: Usage) -> float | None:
    """A dollar for a thousand tokens in, ten for out; cached ones are a tenth."""
    return (usage.input_tokens - 0.9 * usage.cached_tokens + 10 * usage.output_tokens) / 1000


# --------------------------------------------------------------------------------------------- answers


def events(protocol: str, text: str, *, given: int = 100, taken: int = 20, **more: Any) -> list[tuple[str, object]]:
    return (chat_events if protocol == "chat" else anthropic_events)(text, given, taken, **more)


def chat_events(
    text: str, given: int = 100, taken: int = 20, *, cached: int = 0, stop: str = "stop", calls: Iterable[tuple[str, str, str]] = ()
) -> list[tuple[str, object]]:
    def chunk(delta: dict[str, object], finish: str | None = None) -> tuple[str, object]:
        return "", {"id": "1", "model": "some-model-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}

    found = [chunk({"role": "assistant", "content": ""})]
    found += [chunk({"content": text[i : i + 7]}) for i in range(0, len(text), 7)]
    for n, (id, name, arguments) in enumerate(calls):
        found.append(chunk({"tool_calls": [{"index": n, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]}))
        found += [
            chunk({"tool_calls": [{"index": n, "function": {"arguments": arguments[i : i + 9]}}]}) for i in range(0, len(arguments), 9)
        ]
    found.append(chunk({}, "tool_calls" if calls else stop))
    usage = {"prompt_tokens": given, "completion_tokens": taken, "prompt_tokens_details": {"cached_tokens": cached}}
    return [*found, ("", {"choices": [], "usage": usage}), ("", "[DONE]")]


def anthropic_events(
    text: str, given: int = 100, taken: int = 20, *, cached: int = 0, stop: str = "end_turn", calls: Iterable[tuple[str, str, str]] = ()
) -> list[tuple[str, object]]:
    usage = {"input_tokens": given - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0, "output_tokens": 1}
    found: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": {"model": "claude-x-1", "usage": usage}})]
    found.append(("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}))
    for i in range(0, len(text), 7):
        found.append(("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text[i : i + 7]}}))
    found += [("content_block_stop", {"index": 0}), ("ping", {})]
    for n, (id, name, arguments) in enumerate(calls, 1):
        found.append(("content_block_start", {"index": n, "content_block": {"type": "tool_use", "id": id, "name": name, "input": {}}}))
        for i in range(0, len(arguments), 9):
            delta = {"type": "input_json_delta", "partial_json": arguments[i : i + 9]}
            found.append(("content_block_delta", {"index": n, "delta": delta}))
        found.append(("content_block_stop", {"index": n}))
    found.append(("message_delta", {"delta": {"stop_reason": "tool_use" if calls else stop}, "usage": {"output_tokens": taken}}))
    return [(name, {"type": name} | body) for name, body in (*found, ("message_stop", {}))]


def sse(found: Iterable[tuple[str, object]]) -> bytes:
    lines = []
    for event, data in found:
        lines.append(f"event: {event}\n" if event else "")
        lines.append(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n")
    return "".join(lines).encode()


def stream(content: bytes) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=content)


def said(protocol: str, text: str, **more: Any) -> httpx.Response:
    return stream(sse(events(protocol, text, **more)))


def failed(status: int, message: str = "no", headers: dict[str, str] | None = None, **more: object) -> httpx.Response:
    return httpx.Response(status, headers=headers, json={"error": {"message": message, **more}})
