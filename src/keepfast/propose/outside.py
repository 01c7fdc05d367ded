"""What comes into a run from outside, through the ledger's inbox: a try or a submission of an agent that drives by itself, or of a human.

Owns the two messages and their form. Must not know who posts them, or what is done with them.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from keepfast.errors import UsageError
from keepfast.propose.agent import Changed

TRY, SUBMIT = "try", "submit"  # commands of the inbox
MOST = 4 << 20  # characters of a message
T = TypeVar("T")
NAME = "mcp"  # the proposer of what is submitted by nobody else


class Try(Struct, frozen=True, forbid_unknown_fields=True):
    """Answered by an event of kind `try` with `about` this id: the judge's words on `changed`, against the champion of that moment."""

    id: str
    changed: Changed


class Submit(Struct, frozen=True, forbid_unknown_fields=True):
    """Becomes a turn (`TurnNote.session` is this id, `TurnNote.edit` names its edit), and then the experiment with that edit.

    `parent`: number of the experiment whose files `changed` is against.
    """

    id: str
    changed: Changed
    parent: int
    title: str
    idea: int | None = None
    author: str = NAME


def encode(message: Try | Submit) -> str:
    """As the argument of a command. UsageError when it is too long."""
    text = msgspec.json.encode(message).decode()
    if len(text) > MOST:
        raise UsageError(f"the files are too long together: {len(text)} characters of at most {MOST}")
    return text


def read_try(argument: str) -> Try:
    return _read(argument, Try)


def read_submit(argument: str) -> Submit:
    return _read(argument, Submit)


def _read(argument: str, kind: type[T]) -> T:
    """UsageError for what is none."""
    try:
        return msgspec.json.decode(argument[:MOST], type=kind)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise UsageError(f"it is no {kind.__name__.lower()}: {problem}") from None
