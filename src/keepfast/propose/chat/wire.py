"""The protocol of OpenAI-compatible chat completions: hosted, vLLM, SGLang, llama.cpp, OpenRouter.

Owns its JSON. Must not know HTTP, edits or jobs.
"""

from __future__ import annotations

import json

from msgspec import Struct

from keepfast.propose.chat.talk import (
    MOST_CHARACTERS,
    MOST_PARTS,
    Call,
    Count,
    Decoder,
    Echo,
    Key,
    Message,
    Question,
    Reply,
    Results,
    Spoken,
    Stop,
    TooLong,
    compact,
    dig,
    items,
    money,
    parsed,
    tokens,
    unbroken,
    words,
)

_CODES = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 402,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "model_not_found": 404,
}


class ChatCompletions(Struct, frozen=True):
    """`limit_field`: what the server calls the largest answer. `extra`: JSON object put into every request."""

    limit_field: str = "max_tokens"
    usage: bool = True  # ask for a count at the end of the stream
    costs: bool = False  # believe `usage.cost` to be dollars
    extra: str = "{}"
    path: str = "/chat/completions"

    def headers(self, key: Key) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {key.reveal()}"),) if key else ()

    def body(self, question: Question) -> bytes:
        made: dict[str, object] = {"model": question.model, "stream": True}
        made["messages"] = [{"role": "system", "content": question.system}, *(m for q in question.messages for m in _messages(q))]
        if self.usage:
            made["stream_options"] = {"include_usage": True}
        if question.output_tokens is not None:
            made[self.limit_field] = question.output_tokens
        if question.tool is not None:
            function = {"name": question.tool.name, "description": question.tool.description}
            made["tools"] = [{"type": "function", "function": function | {"parameters": json.loads(question.tool.parameters)}}]
            made["tool_choice"] = "auto" if question.tool_allowed else "none"
        return compact(made | json.loads(self.extra)).encode()

    def decoder(self) -> Decoder:
        return _Completion(self.costs)


def _messages(message: Message) -> list[object]:
    if isinstance(message, Echo):
        return [json.loads(message.message)]
    if isinstance(message, Results):
        return [{"role": "tool", "tool_call_id": id, "content": text} for id, text in message.answers]
    return [{"role": "user", "content": f"{message.stable}\n{message.text}" if message.stable else message.text}]


class _Completion:
    """One answer, chunk by chunk."""

    def __init__(self, costs: bool) -> None:
        self._costs = costs
        self._text: list[str] = []
        self._thought: list[str] = []
        self._calls: dict[int, _Parts] = {}
        self._stop: Stop | None = None
        self._model = ""
        self.count = Count()
        self.characters = 0
        self.closed = False

    @property
    def finished(self) -> bool:
        return self._stop is not None or self.closed

    def feed(self, event: str, data: str) -> None:
        if data.strip() == "[DONE]":
            self.closed = True
            return
        self._take(parsed(data), "delta")

    def whole(self, text: str) -> None:
        self._take(parsed(text), "message")
        self.closed = True

    def _take(self, chunk: dict[str, object], part: str) -> None:
        if chunk.get("error"):
            raise _spoken(chunk["error"])
        self._model = words(chunk.get("model")) or self._model
        self._usage(chunk.get("usage"))
        for choice in items(chunk.get("choices"))[:1]:
            if dig(choice, "error"):
                raise _spoken(dig(choice, "error"))
            self._delta(dig(choice, part))
            self._ended(words(dig(choice, "finish_reason")))

    def _delta(self, delta: object) -> None:
        content = dig(delta, "content")
        pieces = [words(content), *(words(dig(p, "text")) for p in items(content))]
        self._text += [self._counted(piece) for piece in pieces if piece]
        thought = words(dig(delta, "reasoning_content")) or words(dig(delta, "reasoning"))
        self._thought.append(self._counted(thought))
        if words(dig(delta, "refusal")):
            self._stop = Stop.REFUSED
            self._text.append(self._counted(words(dig(delta, "refusal"))))
        for call in items(dig(delta, "tool_calls")):
            self._call(call)

    def _call(self, call: object) -> None:
        """A piece of a tool call. A server that leaves `index` out begins a new call with each id."""
        index = tokens(dig(call, "index"))
        if index is None:
            index = len(self._calls) if dig(call, "id") or not self._calls else len(self._calls) - 1
        if len(self._calls) >= MOST_PARTS and index not in self._calls:
            raise TooLong
        parts = self._calls.setdefault(index, _Parts())
        parts.id = parts.id or self._counted(words(dig(call, "id")))
        parts.name = parts.name or self._counted(words(dig(call, "function", "name")))
        parts.arguments.append(self._counted(words(dig(call, "function", "arguments"))))

    def _counted(self, text: str) -> str:
        self.characters += len(text)
        if self.characters > MOST_CHARACTERS:
            raise TooLong
        return text

    def _ended(self, reason: str) -> None:
        if reason == "error":
            raise Spoken(500, "the model's provider failed")
        if reason:
            said = {"length": Stop.LENGTH, "content_filter": Stop.REFUSED}.get(reason, Stop.END)
            self._stop = Stop.REFUSED if self._stop is Stop.REFUSED else said

    def _usage(self, usage: object) -> None:
        """The last count is the whole request's, where a server sends several."""
        given, taken = tokens(dig(usage, "prompt_tokens")), tokens(dig(usage, "completion_tokens"))
        if given is None or taken is None:
            return
        cached = tokens(dig(usage, "prompt_tokens_details", "cached_tokens"))
        cached = tokens(dig(usage, "prompt_cache_hit_tokens")) if cached is None else cached
        dollars = money(dig(usage, "cost")) if self._costs else None
        self.count = Count(given, taken, min(cached or 0, given), dollars=dollars, reported=True)

    def reply(self) -> Reply:
        text = unbroken(self._text)
        calls = tuple(p.call(n) for n, (_, p) in enumerate(sorted(self._calls.items())))
        echo: dict[str, object] = {"role": "assistant", "content": text}
        if calls:
            made = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
            thought = unbroken(self._thought)
            echo |= {"tool_calls": made} | ({"reasoning_content": thought} if thought else {})
        return Reply(text, calls, self._stop or Stop.END, self.count, self._model, compact(echo), self.characters)


class _Parts:
    def __init__(self) -> None:
        self.id, self.name = "", ""
        self.arguments: list[str] = []

    def call(self, n: int) -> Call:
        return Call(unbroken([self.id]) or f"call_{n}", unbroken([self.name]), unbroken(self.arguments))


def _spoken(error: object) -> Spoken:
    """An error in the stream. Its code is a status, or a word that has one; else it is the server's own failure."""
    said = words(error) or words(dig(error, "message"))
    for value in (dig(error, "code"), dig(error, "status"), dig(error, "type")):
        status = tokens(value)
        if status is not None and 400 <= status < 600:
            return Spoken(status, said)
        if words(value) in _CODES:
            return Spoken(_CODES[words(value)], said)
    return Spoken(500, said)
