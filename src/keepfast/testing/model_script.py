"""What a scripted model answers, one record an answer. Data only: must not know HTTP, a wire format or the tools of a CLI.

Tokens are what the script says, never counted: a test compares them with the bill that an agent hands in.
"""

from __future__ import annotations

from msgspec import Struct

from keepfast.propose.agent import Usage

USAGE = Usage(input_tokens=1000, output_tokens=50, cached_tokens=200)


class Reply(Struct, frozen=True, kw_only=True):
    """One answer of the model. `usage`: what its bill says; cached tokens are part of the input, as everywhere in keepfast."""

    usage: Usage = USAGE


class Say(Reply, frozen=True):
    """Words and no tool: with this most agents end their turn."""

    text: str


class Edit(Reply, frozen=True):
    """Replace `old` by `new` in a file, with the tool that the asking CLI offers. An empty `old` writes the file as a whole.

    `path` is relative to the agent's working folder. `old` and `new` are whole lines where the CLI patches by lines (Codex).
    """

    path: str
    old: str
    new: str


class Run(Reply, frozen=True):
    """A shell command, with the tool that the asking CLI offers."""

    command: str


class ToolCall(Reply, frozen=True):
    """A call of the named tool, offered or not, with these arguments: the text of a JSON object."""

    name: str
    arguments: str = "{}"


class MalformedToolCall(Reply, frozen=True):
    """A call that nobody can run: `arguments` is not JSON. An empty name is the first editing or shell tool that is offered.

    Where the wire format cannot carry broken JSON (Gemini; Anthropic without a stream) it is an object without the needed keys.
    """

    name: str = ""
    arguments: str = '{"path": "kernel.c", "old'


class Status(Reply, frozen=True):
    """An HTTP error: 401, 429, 500, 529 or another. `retry_after`: seconds in the header, None: no header."""

    code: int
    retry_after: float | None = None
    text: str = "the script says so"


class HalfStream(Reply, frozen=True):
    """The first half of an answer, then the connection ends. `clean`: as if the answer were over, as some proxies do."""

    of: Reply = Say("This sentence will never come to")
    clean: bool = False


class Endless(Reply, frozen=True):
    """A stream of ever new words that never ends by itself; without a stream no answer. Ends with the client or the server."""

    every_s: float = 0.05


class Slow(Reply, frozen=True):
    """Another answer that takes this many seconds: a stream drips, an answer in one piece comes late."""

    seconds: float
    then: Reply = Say("That took a while.")


class Refuse(Reply, frozen=True):
    """The model declines, in the way that the wire format has for it."""

    text: str = "I can't help with that."


class AskPermission(Reply, frozen=True):
    """A question to the user instead of work: the CLI's own tool for asking where it offers one, else words."""

    text: str = "May I edit kernel.c? Please answer yes or no."


class Exchange(Struct, frozen=True):
    """One request and what was done with it. Keys are in no field: headers and parts of the address that carry them are left out."""

    protocol: str  # chat, responses, messages, gemini; "" for an address that no model has
    path: str  # without the query
    model: str = ""
    stream: bool = False
    headers: tuple[tuple[str, str], ...] = ()  # names in small letters
    key: bool = False  # whether it came with a key, whichever
    tools: tuple[str, ...] = ()
    messages: int = 0
    size_bytes: int = 0
    body: str = ""
    reply: Reply | None = None  # None: nothing of the script was used
    aside: bool = False
    delivered: bool = False  # the whole answer was sent, with its usage
    problem: str = ""  # why the server could not do what the script says
