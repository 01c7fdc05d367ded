"""OpenAI's two wire formats, as a server writes them: chat completions and Responses. Must not know HTTP or the script."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from keepfast.propose.agent import Usage
from keepfast.testing.model_formats import Filled, Parts, Request, dump, event, pieces
from keepfast.testing.model_tools import Call, Offer, Schema

KINDS = {401: "invalid_api_key", 403: "permission_denied", 429: "rate_limit_exceeded"}


def openai_error(status: int, text: str) -> bytes:
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return dump({"error": {"message": text, "type": kind, "code": kind, "param": None}})


class _Function(Struct):
    name: str = ""
    parameters: Schema | None = None


class _Tool(Struct):
    """Either format's: chat nests `function`, Responses does not, and Codex nests the tools of a namespace."""

    type: str = "function"
    name: str = ""
    parameters: Schema | None = None
    function: _Function | None = None
    tools: list[_Tool] = []


class _StreamOptions(Struct):
    include_usage: bool = False


class _Body(Struct):
    model: str
    stream: bool | None = False
    tools: list[_Tool] | None = None
    messages: list[msgspec.Raw] = []
    input: list[msgspec.Raw] | str = ""
    stream_options: _StreamOptions | None = None


def _offers(tools: list[_Tool] | None) -> list[Offer]:
    found: list[Offer] = []
    for tool in tools or []:
        inner = tool.function or _Function(tool.name, tool.parameters)
        plain = Offer(inner.name or tool.type, inner.parameters or Schema(), free=tool.type == "custom")
        found += _offers(tool.tools) if tool.tools else [plain]
    return found


def _read(body: bytes, billed: bool) -> Request:
    said = msgspec.json.decode(body, type=_Body)
    billed = billed or (said.stream_options or _StreamOptions()).include_usage
    count = len(said.messages) or (1 if isinstance(said.input, str) else len(said.input))
    return Request(said.model, bool(said.stream), tuple(_offers(said.tools)), count, billed=billed)


class Chat:
    """Chat completions. A stream has usage only for who asks for it with `stream_options.include_usage`, as with the real ones."""

    name = "chat"

    def read(self, path: str, body: bytes) -> Request:
        return _read(body, billed=False)

    def error(self, status: int, text: str, retry_after: float | None) -> bytes:
        return openai_error(status, text)

    def whole(self, filled: Filled) -> bytes:
        answer = filled.answer
        message: dict[str, Any] = {"role": "assistant", "content": None if answer.calls or answer.refused else answer.text}
        message |= {"refusal": answer.text if answer.refused else None}
        if answer.calls:
            message["tool_calls"] = [self._call(filled, i, c) for i, c in enumerate(answer.calls)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(filled), "logprobs": None}
        return dump(self._envelope(filled, "chat.completion") | {"choices": [choice], "usage": self._usage(filled.usage)})

    def parts(self, filled: Filled) -> Parts:
        answer = filled.answer
        said = "refusal" if answer.refused else "content"
        words: list[dict[str, Any]] = [{said: p} for p in pieces(answer.text)] if not answer.calls else []
        for i, call in enumerate(answer.calls):
            words.append({"tool_calls": [{"index": i} | self._call(filled, i, Call(call.name, ""))]})
            words += [{"tool_calls": [{"index": i, "function": {"arguments": p}}]} for p in pieces(call.arguments)]
        usage = event(self._envelope(filled, "chat.completion.chunk") | {"choices": [], "usage": self._usage(filled.usage)})
        head = (self._chunk(filled, {"role": "assistant", "content": None if answer.calls else ""}, None),)
        bill = (usage,) if filled.billed else ()
        tail = (self._chunk(filled, {}, self._finish(filled)), *bill, b"data: [DONE]\n\n")
        return Parts(head, tuple(self._chunk(filled, w, None) for w in words), tail)

    def _chunk(self, filled: Filled, delta: dict[str, Any], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event(self._envelope(filled, "chat.completion.chunk") | {"choices": [choice]})

    def _envelope(self, filled: Filled, kind: str) -> dict[str, Any]:
        return {"id": filled.id("chatcmpl"), "object": kind, "created": 1_700_000_000, "model": filled.model}

    def _call(self, filled: Filled, at: int, call: Call) -> dict[str, Any]:
        return {"id": filled.id("call", at), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

    def _finish(self, filled: Filled) -> str:
        return "tool_calls" if filled.answer.calls else "content_filter" if filled.answer.refused else "stop"

    def _usage(self, usage: Usage) -> dict[str, Any]:
        named = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens, "total_tokens": usage.tokens}
        details = {"completion_tokens_details": {"reasoning_tokens": 0}, "prompt_tokens_details": {"cached_tokens": usage.cached_tokens}}
        return named | details


class Responses:
    """OpenAI Responses."""

    name = "responses"

    def read(self, path: str, body: bytes) -> Request:
        return _read(body, billed=True)

    def error(self, status: int, text: str, retry_after: float | None) -> bytes:
        return openai_error(status, text)

    def whole(self, filled: Filled) -> bytes:
        return dump(self._response(filled, "completed"))

    def parts(self, filled: Filled) -> Parts:
        started = self._response(filled, "in_progress")
        head = [{"type": "response.created", "response": started}, {"type": "response.in_progress", "response": started}]
        words: list[dict[str, Any]] = []
        items = self._items(filled, "completed")
        for at, item in enumerate(items):
            opening, middle, closing = self._item(at, item, filled)
            # What opens the only item is no word: an endless answer sends words.
            head += opening if len(items) == 1 else []
            words += middle if len(items) == 1 else [*opening, *middle, *closing]
        tail = [*(closing if len(items) == 1 else []), {"type": "response.completed", "response": self._response(filled, "completed")}]
        numbered = [event(e | {"sequence_number": i}, named=True) for i, e in enumerate([*head, *words, *tail])]
        first, last = len(head), len(head) + len(words)
        return Parts(tuple(numbered[:first]), tuple(numbered[first:last]), tuple(numbered[last:]))

    def _item(self, at: int, item: dict[str, Any], filled: Filled) -> tuple[list[dict[str, Any]], ...]:
        """The events that open an item of the output, fill it and close it."""
        where = {"output_index": at, "item_id": item["id"]}
        opening = [{"type": "response.output_item.added", "output_index": at, "item": self._items(filled, "in_progress")[at]}]
        closing = [{"type": "response.output_item.done", "output_index": at, "item": item}]
        if item["type"] == "message":
            where |= {"content_index": 0}
            kind, key = ("refusal", "refusal") if filled.answer.refused else ("output_text", "text")
            empty: dict[str, Any] = {"type": kind, key: ""} | ({} if filled.answer.refused else {"annotations": []})
            opening.append({"type": "response.content_part.added", "part": empty} | where)
            closing.insert(0, {"type": "response.content_part.done", "part": item["content"][0]} | where)
            text = filled.answer.text
        else:
            custom = item["type"] == "custom_tool_call"
            kind, key = ("custom_tool_call_input", "input") if custom else ("function_call_arguments", "arguments")
            text = item[key]
        middle = [{"type": f"response.{kind}.delta", "delta": p} | where for p in pieces(text)]
        closing.insert(0, {"type": f"response.{kind}.done", key: text} | where)
        return opening, middle, closing

    def _items(self, filled: Filled, status: str) -> list[dict[str, Any]]:
        done, answer = status == "completed", filled.answer
        if not answer.calls:
            part = {"type": "output_text", "text": answer.text, "annotations": []}
            if answer.refused:
                part = {"type": "refusal", "refusal": answer.text}
            content = [part] if done else []
            return [{"type": "message", "id": filled.id("msg"), "role": "assistant", "status": status, "content": content}]
        found = []
        for i, call in enumerate(answer.calls):
            kind, key = ("custom_tool_call", "input") if call.free else ("function_call", "arguments")
            item = {"type": kind, "id": filled.id("fc", i), "call_id": filled.id("call", i), "name": call.name, "status": status}
            found.append(item | {key: call.arguments if done else ""})
        return found

    def _response(self, filled: Filled, status: str) -> dict[str, Any]:
        done = status == "completed"
        head = {"id": filled.id("resp"), "object": "response", "created_at": 1_700_000_000, "status": status, "model": filled.model}
        return head | {"output": self._items(filled, status) if done else [], "usage": self._usage(filled.usage) if done else None}

    def _usage(self, usage: Usage) -> dict[str, Any]:
        named = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": usage.tokens}
        details = {"input_tokens_details": {"cached_tokens": usage.cached_tokens}, "output_tokens_details": {"reasoning_tokens": 0}}
        return named | details
