"""What an agent is: something that gets a job, works for one turn, and leaves edited files and a bill. Data and one protocol.

An agent is a coding-agent CLI (`propose/command`) or a model behind an API (`propose/chat`). Must not know the judge, the ledger, git,
or how a job's text was made.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from keepfast.model import File

Changed = tuple[tuple[str, bytes | None], ...]
"""Editable files that differ from a job's: path relative to the task's root, new bytes, or None when it was removed."""

Ask = Callable[[Changed], str]
"""A question to the judge inside a turn (`keepfast try`): what was changed in, words out. Blocks; may be called from any thread, one call
at a time. What is wrong with the change is in the words; it raises nothing."""


class Outcome(StrEnum):
    """How a turn ended. `NEXT_STEP` says what it means for whoever watches."""

    EDITED = "edited"
    NOTHING = "nothing-changed"
    PERMISSION = "asked-for-permission"
    REFUSED = "refused"
    RATE_LIMITED = "rate-limited"
    AUTHENTICATION = "authentication-failed"
    TIMED_OUT = "timed-out"
    OVER_BUDGET = "over-budget"
    CRASHED = "crashed"
    MALFORMED = "malformed"  # an answer that holds no edit that can be applied
    MISSING = "not-installed"
    STOPPED = "stopped"


NEXT_STEP: dict[Outcome, str] = {
    Outcome.EDITED: "its files are judged",
    Outcome.NOTHING: "it is told that nothing changed and asked once more; then another proposer has its turn",
    Outcome.PERMISSION: "it asked a question that nobody answers at night: its flags must allow edits in its workspace",
    Outcome.REFUSED: "it is asked with the rules in other words once, then another proposer takes the idea over",
    Outcome.RATE_LIMITED: "it sleeps until its limit resets, the others go on",
    Outcome.AUTHENTICATION: "give it a key, see `keepfast doctor`; it is not asked again in this run",
    Outcome.TIMED_OUT: "what it had edited by then is not used; raise the limit or ask for less",
    Outcome.OVER_BUDGET: "the money for it is spent",
    Outcome.CRASHED: "it is started again once, with what it said last in the event",
    Outcome.MALFORMED: "the exact error goes back to it",
    Outcome.MISSING: "install it, or name another proposer",
    Outcome.STOPPED: "the run ended while it worked; what it had edited by then is not used",
}


class Usage(Struct, frozen=True):
    """Tokens of one turn. `dollars` None: nobody knows; never 0 for unknown."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0  # of the input
    dollars: float | None = None
    requests: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Page(Struct, frozen=True):
    """A read-only page of context, by file name."""

    name: str
    text: str


def never() -> bool:
    return False


class Limits(Struct, frozen=True):
    """`ended` is asked again and again while a turn lasts, from any thread: true ends it as `Outcome.STOPPED`."""

    seconds: float = 900.0
    turns: int = 40  # requests to the model, or turns of a CLI that counts them
    dollars: float | None = None  # hard stop where the agent can be told, or its usage is seen while it works
    tries: int = 10  # questions to the judge
    ended: Callable[[], bool] = never


class Job(Struct, frozen=True):
    """All that an agent sees: a bare folder with these files and nothing else.

    files      the editable files of the champion, paths relative to the task's root
    readable   files it may read: reference.py and what the task makes readable
    brief      BRIEF.md
    pages      context/*.md
    session    what `Turn.session` said last, to go on with a conversation; "" begins one
    remark     one more sentence for this turn: what was wrong with the last one
    """

    files: tuple[File, ...]
    readable: tuple[File, ...]
    brief: str
    pages: tuple[Page, ...] = ()
    limits: Limits = Limits()
    session: str = ""
    remark: str = ""
    editable: tuple[str, ...] = ()  # globs: only these are read back
    ask: Ask | None = None  # the judge, for tries within the turn; it may take as long as the evaluation that is under way


class Turn(Struct, frozen=True):
    """What a turn left."""

    outcome: Outcome
    detail: str = ""  # one sentence, escaped where shown
    changed: Changed = ()
    title: str = ""  # what it says it did, one line
    usage: Usage = Usage()
    seconds: float = 0.0
    version: str = ""  # of the CLI, or the model's name as the server gave it
    session: str = ""
    until: float | None = None  # unix time at which a rate limit resets
    said: str = ""  # its last message, at most 4,000 characters


class Agent(Protocol):
    @property
    def name(self) -> str: ...

    def turn(self, job: Job) -> Turn:
        """One turn. Never raises for what the agent or the network does: that is an Outcome."""
