"""Anthropic's messages and Gemini's generateContent, as a server writes them. Must not know HTTP or the script."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from keepfast.propose.agent import Usage
from keepfast.testing.model_formats import Filled, Parts, Request, as_object, dump, event, pieces
from keepfast.testing.model_tools import Call, Offer, Schema


class _MessagesTool(Struct):
    name: str = ""
    input_schema: Schema | None = None


class _MessagesBody(Struct):
    model: str
    stream: bool | None = False
    tools: list[_MessagesTool] | None = None
    messages: list[msgspec.Raw] = []


class Messages:
    """Anthropic messages. Its input tokens leave out those that were cached."""

    name = "messages"

    def read(self, path: str, body: bytes) -> Request:
        said = msgspec.json.decode(body, type=_MessagesBody)
        offers = tuple(Offer(t.name, t.input_schema or Schema()) for t in said.tools or [])
        return Request(said.model, bool(said.stream), offers, len(said.messages), path.endswith("/count_tokens"))

    def error(self, status: int, text: str, retry_after: float | None) -> bytes:
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        kinds |= {500: "api_error", 529: "overloaded_error"}
        kind = kinds.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return dump({"type": "error", "error": {"type": kind, "message": text}})

    def whole(self, filled: Filled) -> bytes:
        answer = filled.answer
        content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if not answer.calls else []
        content += [self._call(filled, i, c) | {"input": as_object(c.arguments)} for i, c in enumerate(answer.calls)]
        message = self._message(filled) | {"content": content, "stop_reason": self._stop(filled)}
        return dump(message | {"usage": self._usage(filled.usage, filled.usage.output_tokens)})

    def parts(self, filled: Filled) -> Parts:
        answer = filled.answer
        begun = self._message(filled) | {"usage": self._usage(filled.usage, 1)}
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if not answer.calls:
            blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(answer.text)]))
        for i, call in enumerate(answer.calls):
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in pieces(call.arguments)]
            blocks.append((self._call(filled, i, call) | {"input": {}}, deltas))
        events: list[dict[str, Any]] = []
        for i, (block, deltas) in enumerate(blocks):
            events.append({"type": "content_block_start", "index": i, "content_block": block})
            events += [{"type": "content_block_delta", "index": i, "delta": d} for d in deltas]
            events.append({"type": "content_block_stop", "index": i})
        stop = {"stop_reason": self._stop(filled), "stop_sequence": None}
        usage = self._usage(filled.usage, filled.usage.output_tokens)
        over: list[dict[str, Any]] = [events[-1], {"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"}]
        head: list[dict[str, Any]] = [{"type": "message_start", "message": begun}, events[0]]
        return Parts(*(tuple(event(e, named=True) for e in some) for some in (head, events[1:-1], over)))

    def _message(self, filled: Filled) -> dict[str, Any]:
        head = {"id": filled.id("msg"), "type": "message", "role": "assistant", "model": filled.model}
        return head | {"content": [], "stop_reason": None, "stop_sequence": None}

    def _call(self, filled: Filled, at: int, call: Call) -> dict[str, Any]:
        return {"type": "tool_use", "id": filled.id("toolu", at), "name": call.name}

    def _stop(self, filled: Filled) -> str:
        return "tool_use" if filled.answer.calls else "refusal" if filled.answer.refused else "end_turn"

    def _usage(self, usage: Usage, output: int) -> dict[str, Any]:
        fresh = usage.input_tokens - usage.cached_tokens
        cached = {"cache_read_input_tokens": usage.cached_tokens, "cache_creation_input_tokens": 0}
        return {"input_tokens": fresh, "output_tokens": output} | cached


class _Declaration(Struct, rename="camel"):
    name: str
    parameters: Schema | None = None
    parameters_json_schema: Schema | None = None


class _GeminiTool(Struct, rename="camel"):
    function_declarations: list[_Declaration] = []


class _GeminiBody(Struct):
    tools: list[_GeminiTool] | None = None
    contents: list[msgspec.Raw] = []


class Gemini:
    """Gemini's generateContent, streamGenerateContent and countTokens. The model and the verb are in the address."""

    name = "gemini"

    def read(self, path: str, body: bytes) -> Request:
        said = msgspec.json.decode(body, type=_GeminiBody)
        model, _, verb = path.rpartition("/")[2].partition(":")
        declared = [d for tool in said.tools or [] for d in tool.function_declarations]
        offers = tuple(Offer(d.name, d.parameters_json_schema or d.parameters or Schema()) for d in declared)
        return Request(model, verb.startswith("stream"), offers, len(said.contents), verb == "countTokens")

    def error(self, status: int, text: str, retry_after: float | None) -> bytes:
        kinds = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 400: "INVALID_ARGUMENT"}
        error: dict[str, Any] = {"code": status, "message": text, "status": kinds.get(status, "UNAVAILABLE")}
        if retry_after is not None:
            error["details"] = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after:g}s"}]
        return dump({"error": error})

    def whole(self, filled: Filled) -> bytes:
        return dump(self._response(filled, self._said(filled), last=True))

    def parts(self, filled: Filled) -> Parts:
        said = self._said(filled)
        words = [[{"text": p}] for p in pieces(filled.answer.text)] if not filled.answer.calls else [[p] for p in said]
        tail = event(self._response(filled, [], last=True))
        return Parts((), tuple(event(self._response(filled, w, last=False)) for w in words), (tail,))

    def _said(self, filled: Filled) -> list[dict[str, Any]]:
        calls = [{"name": c.name, "args": as_object(c.arguments), "id": filled.id("call", i)} for i, c in enumerate(filled.answer.calls)]
        return [{"functionCall": c} for c in calls] or [{"text": filled.answer.text}]

    def _response(self, filled: Filled, parts: list[dict[str, Any]], last: bool) -> dict[str, Any]:
        candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts or [{"text": ""}]}}
        response: dict[str, Any] = {"candidates": [candidate], "modelVersion": filled.model, "responseId": filled.id("resp")}
        if last:
            candidate["finishReason"] = "SAFETY" if filled.answer.refused else "STOP"
            response["usageMetadata"] = self._usage(filled.usage)
        return response

    def _usage(self, usage: Usage) -> dict[str, Any]:
        named = {"promptTokenCount": usage.input_tokens, "candidatesTokenCount": usage.output_tokens, "totalTokenCount": usage.tokens}
        return named | {"cachedContentTokenCount": usage.cached_tokens}
