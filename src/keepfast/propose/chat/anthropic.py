"""The protocol of Anthropic's messages. Owns its JSON. Must not know HTTP, edits or jobs."""

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
    Malformed,
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
    parsed,
    tokens,
    unbroken,
    words,
)

VERSION = "2023-06-01"
OUTPUT_TOKENS = 32_000  # the protocol wants a number
WRITE_SURCHARGE = 0.25  # of the price of input, for input that is put into the five-minute cache
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_STOPS = {"max_tokens": Stop.LENGTH, "model_context_window_exceeded": Stop.LENGTH, "refusal": Stop.REFUSED}
_COUNTED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
# A piece of a block: the type of the delta, its field, and the field of the block that it goes on with.
_DELTAS = {
    "text_delta": ("text", "text"),
    "input_json_delta": ("partial_json", "input"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}


class Messages(Struct, frozen=True):
    """`cache`: mark what is stable, so that the requests that follow pay less for it. `extra`: JSON object put into every request."""

    cache: bool = True
    extra: str = "{}"
    path: str = "/v1/messages"

    def headers(self, key: Key) -> tuple[tuple[str, str], ...]:
        return (("anthropic-version", VERSION), *((("x-api-key", key.reveal()),) if key else ()))

    def body(self, question: Question) -> bytes:
        made: dict[str, object] = {"model": question.model, "stream": True, "max_tokens": question.output_tokens or OUTPUT_TOKENS}
        made["system"] = [self._text(question.system, stable=True)]
        made["messages"] = _joined([self._message(m, first=n == 0) for n, m in enumerate(question.messages)])
        if question.tool is not None:
            tool = {"name": question.tool.name, "description": question.tool.description}
            made["tools"] = [tool | {"input_schema": json.loads(question.tool.parameters)}]
            made["tool_choice"] = {"type": "auto" if question.tool_allowed else "none"}
        return compact(made | json.loads(self.extra)).encode()

    def _message(self, message: Message, first: bool) -> dict[str, object]:
        if isinstance(message, Echo):
            found: dict[str, object] = json.loads(message.message)
            return found
        if isinstance(message, Results):
            made = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in message.answers]
            return {"role": "user", "content": made}
        stable = [self._text(message.stable, stable=True)] if message.stable else []
        return {"role": "user", "content": [*stable, self._text(message.text, stable=first)]}

    def _text(self, text: str, stable: bool) -> dict[str, object]:
        return {"type": "text", "text": text} | ({"cache_control": {"type": "ephemeral"}} if stable and self.cache else {})

    def decoder(self) -> Decoder:
        return _Message()


def _joined(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    """Messages of one role after the other as one: results of tools must come first in what follows their call."""
    made: list[dict[str, object]] = []
    for message in messages:
        if made and made[-1]["role"] == message["role"]:
            made[-1] = made[-1] | {"content": items(made[-1]["content"]) + items(message["content"])}
        else:
            made.append(message)
    return made


class _Block:
    """A part of the answer: fields that came whole, and fields that come in pieces."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.kind = words(fields.get("type"))
        self.fields = {k: v for k, v in fields.items() if k not in ("text", "thinking", "signature")}
        self.pieces: dict[str, list[str]] = {}
        for name in ("text", "thinking", "signature"):
            if words(fields.get(name)):
                self.pieces[name] = [words(fields[name])]

    def piece(self, name: str) -> str:
        return unbroken(self.pieces.get(name, []))

    def arguments(self) -> str:
        given = self.fields.get("input")
        return self.piece("input") or compact(given if isinstance(given, dict) else {})

    def echo(self) -> dict[str, object]:
        made = self.fields | {name: self.piece(name) for name in self.pieces if name != "input"}
        return made | ({"input": _object(self.arguments())} if self.kind == "tool_use" else {})


class _Message:
    """One answer, event by event."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._stop: Stop | None = None
        self._model = ""
        self._seen: dict[str, int] = {}
        self.characters = 0
        self.closed = False

    @property
    def finished(self) -> bool:
        return self._stop is not None or self.closed

    @property
    def count(self) -> Count:
        new, read, written, output = (self._seen.get(name, 0) for name in _COUNTED)
        return Count(new + read + written, output, read, written, reported=self._stop is not None and bool(self._seen))

    def feed(self, event: str, data: str) -> None:
        found = parsed(data)
        kind = words(found.get("type")) or event
        if kind == "error":
            raise Spoken(_STATUS.get(words(dig(found, "error", "type")), 500), words(dig(found, "error", "message")))
        if kind == "message_start":
            self._begin(found.get("message"))
        elif kind in ("content_block_start", "content_block_delta"):
            self._part(kind, found)
        elif kind == "message_delta":
            self._usage(found.get("usage"))
            self._ended(words(dig(found, "delta", "stop_reason")))
        elif kind == "message_stop":
            self.closed = True

    def whole(self, text: str) -> None:
        found = parsed(text)
        if words(found.get("type")) != "message":
            self.feed("", text)
            raise Malformed("neither a stream nor a message")
        self._begin(found)
        for n, block in enumerate(items(found.get("content"))):
            self._open(n, block)
        self._ended(words(found.get("stop_reason")))
        self.closed = True

    def _begin(self, message: object) -> None:
        self._model = words(dig(message, "model")) or self._model
        self._usage(dig(message, "usage"))

    def _part(self, kind: str, found: dict[str, object]) -> None:
        index = tokens(found.get("index")) or 0
        if kind == "content_block_start":
            self._open(index, found.get("content_block"))
            return
        if index not in self._blocks:
            raise Malformed("a piece of a block that never began")
        name, field = _DELTAS.get(words(dig(found, "delta", "type")), ("", ""))
        if name:
            self._blocks[index].pieces.setdefault(field, []).append(self._counted(words(dig(found, "delta", name))))

    def _open(self, index: int, block: object) -> None:
        if not isinstance(block, dict):
            raise Malformed("a block that is no object")
        if len(self._blocks) >= MOST_PARTS:
            raise TooLong
        self._counted(compact(block))
        self._blocks[index] = _Block(block)

    def _counted(self, text: str) -> str:
        self.characters += len(text)
        if self.characters > MOST_CHARACTERS:
            raise TooLong
        return text

    def _ended(self, reason: str) -> None:
        if reason:
            self._stop = _STOPS.get(reason, Stop.END)

    def _usage(self, usage: object) -> None:
        """Counts are cumulative: the last of each is the whole request's."""
        for name in _COUNTED:
            if (value := tokens(dig(usage, name))) is not None:
                self._seen[name] = value

    def reply(self) -> Reply:
        blocks = [b for _, b in sorted(self._blocks.items())]
        text = "".join(b.piece("text") for b in blocks if b.kind == "text")
        calls = tuple(_call(b, n) for n, b in enumerate(blocks) if b.kind == "tool_use")
        echo = {"role": "assistant", "content": [b.echo() for b in blocks if b.kind != "text" or b.piece("text").strip()]}
        return Reply(text, calls, self._stop or Stop.END, self.count, self._model, compact(echo), self.characters)


def _call(block: _Block, n: int) -> Call:
    return Call(words(block.fields.get("id")) or f"call_{n}", words(block.fields.get("name")), block.arguments())


def _object(text: str) -> dict[str, object]:
    """The arguments of a call as the object that the protocol wants back; empty when the model wrote none."""
    try:
        return parsed(text)
    except Malformed:
        return {}
