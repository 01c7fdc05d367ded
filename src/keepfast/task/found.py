"""What was found out about a function by watching it run, as the ways of making a task take it: cases, arguments, contents, outputs.

Must not know where it comes from.
"""

from __future__ import annotations

from msgspec import Struct, field

from keepfast.task.given import Cases, Given


class Returned(Struct, frozen=True):
    """What a call gave back: how many values (one for a tensor alone), and which of them are new tensors."""

    count: int
    fresh: tuple[int, ...]


class Found(Struct, frozen=True):
    """`draws`: for single arguments, what inputs() says for them; `head`: what reference.py needs for that, with `imports`; `merged`: an
    expression whose entries replace those drawn. `files`: beside reference.py. `whole`: arguments with refresh = "whole"."""

    cases: Cases
    said: dict[str, Given]
    draws: dict[str, str] = field(default_factory=dict)
    head: str = ""
    merged: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    whole: tuple[str, ...] = ()
    returned: Returned | None = None
    notes: tuple[str, ...] = ()
