"""What the judge and the reference worker say to each other. Data only."""

from __future__ import annotations

from msgspec import Struct

from keepfast.judge import sets
from keepfast.model import Case, Task


class Job(Struct, frozen=True):
    """make: draw inputs, and results when `oracle`. check: results for inputs handed over. compare: the task's own compare()."""

    kind: str  # make | check | compare
    case: Case
    seed: tuple[int, ...] = ()
    oracle: bool = True
    layout: sets.Layout | None = None
    words: tuple[sets.Word, ...] = ()
    scale: float = 1.0


class Request(Struct, frozen=True):
    task: Task
    jobs: tuple[Job, ...]
    frozen: str = ""  # shared object of the frozen oracle


class Piece(Struct, frozen=True):
    """One contiguous array inside the answer's memory."""

    dtype: str
    shape: tuple[int, ...]
    at: int


class Answer(Struct, frozen=True):
    layout: sets.Layout | None = None
    words: tuple[sets.Word, ...] = ()
    size: int = 0
    working: tuple[Piece, ...] = ()
    exact: tuple[Piece, ...] = ()
    in_at: int = 0
    out_at: int = 0
    error: str = ""
    verdict: str = ""
    limit_bytes: float = 0.0  # of the task's own limit(case, inputs), 0 when it has none
    limit_flops: float = 0.0
