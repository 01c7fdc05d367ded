"""What a run is given: task, repository, ledger, judge, proposer, clock. Owns the seams of the loop, and no behaviour."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from keepfast.ledger import Ledger
from keepfast.model import Begin, Calibration, Candidate, CaseStanding, Direct, Event, Run, Task, Verdict
from keepfast.propose.base import Proposer
from keepfast.repo import Repo


class Judge(Protocol):
    """Who decides. A machine that cannot judge now is a void verdict, or MachineError when waiting will not help."""

    def begin(self, start: Candidate, calibration: Calibration | None) -> Begin: ...

    def evaluate(self, candidate: Candidate, against: Candidate, standing: tuple[CaseStanding, ...], *, only_try: bool = False) -> Verdict:
        """`only_try`: all that makes it right or wrong, then one screening round and no decision."""

    def compare(self, champion: Candidate, opponent: str, rounds: int, final: bool) -> Direct: ...


class Clock(Protocol):
    def time(self) -> float:
        """Unix time."""

    def monotonic(self) -> float:
        """Seconds, from any beginning."""

    def sleep(self, seconds: float) -> None: ...


def unproven(kept: Candidate, verdict: Verdict, keeps: int) -> None:
    """There is no engine to prove a keep in."""


class Session(Struct, frozen=True):
    """All that a run needs; made once, in `cli`. `task.budget` is the one that counts, whatever the file says.

    `prove`: called with every keep and how many there are; writes down what an engine says of it, and decides nothing.
    """

    task: Task
    repo: Repo
    ledger: Ledger
    judge: Judge
    proposer: Proposer
    run: Run
    on_event: Callable[[Event], None]
    clock: Clock = time  # the module has the three functions
    prove: Callable[[Candidate, Verdict, int], None] = unproven
