"""What is said to a model and what it answers, in no protocol's words: data, and what a protocol has to do.

Must not know HTTP, edits or jobs. Everything that a server sent is hostile: the helpers here read it without trusting any type.
"""

from __future__ import annotations

import json
import math
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from keepfast.propose.agent import Outcome

MOST_TOKENS = 10**9  # a count above this is nonsense
MOST_CHARACTERS = 2_000_000  # of one answer, its reasoning included
MOST_PARTS = 1_000  # blocks or tool calls of one answer
TOOL = "try_candidate"


class Key:
    """A secret that no repr, log or traceback shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Key(***)"

    def __bool__(self) -> bool:
        return bool(self._value)

    def reveal(self) -> str:
        return self._value

    def hide(self, text: str) -> str:
        """`text` without the key. What is shorter than eight characters is a placeholder such as `EMPTY` and no secret."""
        return text.replace(self._value, "[key]") if len(self._value) >= 8 else text


class Stop(StrEnum):
    """Why an answer ended."""

    END = "end"
    LENGTH = "length"
    REFUSED = "refused"


class Call(Struct, frozen=True):
    """A tool that the model called. `arguments` is the JSON text that it wrote, which may be none."""

    id: str
    name: str
    arguments: str


class Count(Struct, frozen=True):
    """Tokens of one request as the server counted them. `written_tokens` (of the input) went into a cache, at a higher price."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    dollars: float | None = None  # where the server says it
    reported: bool = False  # the count is the whole request's


class Reply(Struct, frozen=True):
    """A whole answer. `echo` is the JSON of the assistant's message as its protocol wants it back."""

    text: str
    calls: tuple[Call, ...]
    stop: Stop
    count: Count
    model: str
    echo: str
    characters: int  # of all that it wrote, reasoning included


class Trouble(Struct, frozen=True):
    """A request that led to no whole answer. `again`: another try may help, after `wait_s` where the server says so."""

    outcome: Outcome
    detail: str
    again: bool = False
    wait_s: float | None = None
    count: Count = Count()
    begun: bool = False  # the server had begun to answer, so it may be billed
    characters: int = 0  # of the answer by then


class Told(Struct, frozen=True):
    """What the user says. `stable` comes first and is the same from turn to turn, so that it may be cached."""

    text: str
    stable: str = ""


class Echo(Struct, frozen=True):
    """An assistant's message, in the words of the protocol that brought it."""

    message: str


class Results(Struct, frozen=True):
    """Answers to all tool calls of the message before: (id of the call, words)."""

    answers: tuple[tuple[str, str], ...]


Message = Told | Echo | Results


class Tool(Struct, frozen=True):
    name: str
    description: str
    parameters: str  # JSON schema


class Question(Struct, frozen=True):
    """One request."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tool: Tool | None = None
    tool_allowed: bool = True  # False: it was offered before, and must not be called now
    output_tokens: int | None = None


class Malformed(Exception):
    """What arrived is not what the protocol says. The text is a sentence without a full stop."""


class TooLong(Exception):
    """The answer passes what is taken of one."""


class Spoken(Exception):
    """The server said within its answer that it failed: the HTTP status that means the same, and its words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Decoder(Protocol):
    """Takes the events of one answer in order. Raises Malformed, TooLong or Spoken."""

    @property
    def finished(self) -> bool:
        """Whether the answer is whole."""

    @property
    def closed(self) -> bool:
        """Whether nothing can follow."""

    @property
    def characters(self) -> int: ...

    @property
    def count(self) -> Count: ...

    def feed(self, event: str, data: str) -> None: ...

    def whole(self, text: str) -> None:
        """An answer that was not streamed."""

    def reply(self) -> Reply: ...


class Dialect(Protocol):
    """A protocol: where requests go, what they are, and how answers are read."""

    @property
    def path(self) -> str: ...

    def headers(self, key: Key) -> tuple[tuple[str, str], ...]: ...

    def body(self, question: Question) -> bytes: ...

    def decoder(self) -> Decoder: ...


# --------------------------------------------------------------------------------------------- reading hostile JSON


def parsed(text: str) -> dict[str, object]:
    """The JSON object in `text`. Malformed when it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise Malformed("not a JSON object")
    return found


def dig(value: object, *keys: str) -> object:
    """value[key][key]..., or None where something on the way is missing or no object."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def words(value: object) -> str:
    return value if isinstance(value, str) else ""


def items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def tokens(value: object) -> int | None:
    """A count of tokens; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value <= MOST_TOKENS else None


def money(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if 0 <= value <= 1e6 else None


def unbroken(parts: list[str]) -> str:
    """The parts as one text that UTF-8 can hold: halves of a surrogate pair joined, single ones replaced."""
    text = "".join(parts)
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
