"""The wire formats of models in common: what a request is read into, and the interface that each format fills.

Must not know HTTP or the script: `model_openai` and `model_others` hold the formats, `model_server` serves them.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from msgspec import Struct

from keepfast.propose.agent import Usage
from keepfast.testing.model_tools import Answer, Offer


class Request(Struct, frozen=True):
    """What of a request matters, in whichever format it came."""

    model: str
    stream: bool
    offers: tuple[Offer, ...]
    messages: int
    counts: bool = False  # asks only how many tokens it has
    billed: bool = True  # wants the usage in a stream


class Filled(Struct, frozen=True):
    """An answer with what the envelope needs. `number`: of the request, for ids that never come twice."""

    answer: Answer
    usage: Usage
    model: str
    number: int
    billed: bool = True

    def id(self, prefix: str, at: int = 0) -> str:
        return f"{prefix}_{self.number:04d}_{at}"


class Parts(Struct, frozen=True):
    """A stream as bytes: `words` are the pieces of text or arguments, the first of which an endless answer sends again and again."""

    head: tuple[bytes, ...]
    words: tuple[bytes, ...]
    tail: tuple[bytes, ...]

    def all(self) -> tuple[bytes, ...]:
        return (*self.head, *self.words, *self.tail)


class Format(Protocol):
    """One wire format."""

    @property
    def name(self) -> str: ...

    def read(self, path: str, body: bytes) -> Request:
        """Raises msgspec.DecodeError for what is no request of this format."""

    def whole(self, filled: Filled) -> bytes: ...

    def parts(self, filled: Filled) -> Parts: ...

    def error(self, status: int, text: str, retry_after: float | None) -> bytes: ...


def pieces(text: str) -> tuple[str, ...]:
    """Text in at most eight pieces, as a model streams it; at least one."""
    size = max(12, -(-len(text) // 8))
    return tuple(text[i : i + size] for i in range(0, len(text), size)) or ("",)


def dump(value: object) -> bytes:
    return msgspec.json.encode(value)


def event(value: dict[str, Any], named: bool = False) -> bytes:
    """A server-sent event; `named`: with its type on a line of its own."""
    head = b"event: " + str(value["type"]).encode() + b"\n" if named else b""
    return head + b"data: " + dump(value) + b"\n\n"


def as_object(arguments: str) -> dict[str, Any]:
    """Arguments where the format wants an object: broken JSON becomes one that holds it."""
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"malformed": arguments}
