"""What is learnt from the output of an agent while it works. The output is hostile: everything taken from it is cut and checked.

Owns reading a line as an event, safe look-ups in one, and the notes that the readers of the CLIs write. Must not know any CLI.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from keepfast.propose.agent import Usage

MAX_LINE = 1 << 20  # bytes; longer lines are skipped
MAX_SAID = 4000
MAX_ERROR = 500
MAX_ERRORS = 20
MAX_COUNT = 10**12
MAX_DOLLARS = 1e6

Event = Mapping[str, object]


def read_event(line: bytes) -> Event | None:
    """The JSON object on a line; None for anything else."""
    if not line.lstrip().startswith(b"{") or len(line) > MAX_LINE:
        return None
    try:
        found = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def at(event: object, *path: str) -> object:
    """What lies at `path`, or None."""
    for name in path:
        event = event.get(name) if isinstance(event, dict) else None
    return event


def text(event: object, *path: str) -> str:
    """The string at `path`, or an empty one."""
    found = at(event, *path)
    return found if isinstance(found, str) else ""


def count(event: object, *path: str) -> int:
    """The whole number at `path`; 0 for anything that counts nothing."""
    found = at(event, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= MAX_COUNT else 0


def dollars(event: object, *path: str) -> float | None:
    """The amount at `path`, or None."""
    found = at(event, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if 0 <= found <= MAX_DOLLARS and math.isfinite(found) else None


def items(event: object, *path: str) -> list[object]:
    """The list at `path`, or an empty one; at most a thousand."""
    found = at(event, *path)
    return found[:1000] if isinstance(found, list) else []


def plain(said: object, limit: int = MAX_ERROR) -> str:
    """On one line, cut; for details and titles."""
    line = " ".join(said.split()) if isinstance(said, str) else ""
    line = "".join(c if c.isprintable() else "?" for c in line[: 4 * limit])
    return line if len(line) <= limit else line[: limit - 3] + "..."


class Notes:
    """What one turn said, as far as it was understood.

    said        its last message
    model       as it names it
    session     how to go on with this conversation
    steps       what the limit on turns counts: requests, or actions of a CLI that does not show its requests
    errors      what went wrong, newest last; they count when `failed` or the exit status says so
    status      HTTP status of the last error, where it was told
    resets      unix time at which a limit ends, where it was told
    retry_s     in how many seconds it tries again, where it was told
    stuck       the last that was heard is an error
    denied      what it asked for and was not allowed
    spent       it stopped at its own money limit
    turned_out  it stopped at its own limit of turns
    finished    its last event was seen
    failed      it says itself that the turn failed
    """

    def __init__(self) -> None:
        self.said = self.session = self.model = ""
        self.steps = self.events = 0
        self.errors: list[str] = []
        self.denied: list[str] = []
        self.status: int | None = None
        self.resets: float | None = None
        self.retry_s: float | None = None
        self.stuck = False
        self.spent = self.turned_out = self.finished = self.failed = False
        self.input = self.output = self.cached = self.requests = 0
        self.dollars: float | None = None

    def say(self, words: str) -> None:
        """Its last message so far."""
        if words.strip():
            self.said = words.strip()[:MAX_SAID]

    def go_on(self, words: str) -> None:
        """A message that arrives in pieces."""
        self.said = (self.said + words)[:MAX_SAID]

    def open(self, session: str) -> None:
        """The session's name, when it is one that can be given back on a command line."""
        if 0 < len(session) <= 100 and session[0].isalnum() and all(c.isalnum() or c in "-_" for c in session):
            self.session = session

    def err(self, words: str, status: object = None) -> None:
        """An error. It may yet be mended: `well` forgets it, `fail` makes it final."""
        self.errors = [*self.errors[1 - MAX_ERRORS :], plain(words) or "an error without words"]
        self.status = status if isinstance(status, int) and 100 <= status <= 599 else None
        self.stuck = True

    def fail(self, words: str, status: object = None) -> None:
        self.err(words, status if status is not None else self.status)
        self.failed = True

    def well(self) -> None:
        """It works again, or ended well: what went wrong before is mended."""
        self.failed = self.stuck = False
        self.status = self.retry_s = None
        self.errors.clear()

    def deny(self, what: str) -> None:
        if len(self.denied) < MAX_ERRORS:
            self.denied.append(plain(what, 200) or "something")

    def bill(self, input_tokens: int, output_tokens: int, cached: int, cost: float | None = None) -> None:
        """Adds one request. A cost of nothing for tokens that were used says that its price is not known."""
        self.input, self.output, self.cached = self.input + input_tokens, self.output + output_tokens, self.cached + cached
        self.requests += 1
        if cost:
            self.dollars = (self.dollars or 0.0) + cost

    @property
    def usage(self) -> Usage:
        return Usage(self.input, self.output, self.cached, self.dollars, self.requests)
