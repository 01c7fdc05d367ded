"""The judge's end of the oracle, the process that runs the human's reference.py on the GPU: draws contents, judges results.

Owns its start, its restart after a death, and the `TaskError` that each of its failures is. It lives as long as the judge. Must not
import the human's code, and must not know candidates.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, TypeVar

from keepfast import settings
from keepfast.errors import TaskError
from keepfast.gpu import messages
from keepfast.gpu.messages import Answer, Bank, Described, Measured, Mutated, Question
from keepfast.judge.gpu import peer
from keepfast.judge.gpu.peer import Argv, Peer, Silence
from keepfast.model import Task

DESCRIBE_S = 300.0  # imports of torch and of the human's among it
ASK_S = 300.0
MUTATE_S = 1800.0  # every mutant on every case


class Said(Protocol):
    """What every answer of the oracle has."""

    @property
    def error(self) -> str: ...

    @property
    def where(self) -> str: ...

    @property
    def next_step(self) -> str: ...


A = TypeVar("A", bound=Said)


class Oracle:
    """Starts at once, so that its imports are done when it is first asked. `audit`: the kind of memory that calls are shown in."""

    def __init__(self, task: Task, card: str = "", index: int = 0, argv: Argv | None = None, audit: str = "gpu") -> None:
        """`card`: the UUID of the only one to see, which then is number 0; else number `index` of those that are visible."""
        self.task, self.audit, self.starts = task, audit, 0
        self._argv = argv or _command(str(0 if card else index))
        self._env = settings.reference_environment(task.threads) | peer.visible(card) | _path()
        self._peer: Peer | None = self._begun()

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def describe(self, cases: Sequence[str] = ()) -> Described:
        return self._one(messages.Describe(tuple(cases)), Described, DESCRIBE_S)

    def fill(self, case: str, seeds: Sequence[tuple[int, ...]], kind: str = "gpu", meta: tuple[int, ...] = ()) -> tuple[Bank, int]:
        """New contents, and the descriptor of their memory, which the caller closes. `meta`: seed of what the host may read."""
        found, fds = self._asked(messages.Fill(case, tuple(seeds), kind, meta), messages.Filled, ASK_S)
        if found.bank is None or len(fds) != 1:
            _close(fds)
            raise TaskError("the oracle sent no contents", where=f"reference.py, case {case}", next_step="keepfast doctor")
        return found.bank, fds[0]

    def ask(self, case: str, fd: int, size: int) -> Answer:
        """Is the call in the audit memory right? `fd` stays the caller's."""
        return self._one(messages.Ask(case, self.audit, size), Answer, ASK_S, (fd,))

    def mutate(self) -> Mutated:
        return self._one(messages.Mutate(), Mutated, MUTATE_S)

    def measure(self) -> Measured:
        return self._one(messages.Measure(), Measured, ASK_S)

    # ---- how it is asked -----------------------------------------------------------------------------------------------

    def _one(self, question: Question, kind: type[A], timeout_s: float, fds: Sequence[int] = ()) -> A:
        found, extra = self._asked(question, kind, timeout_s, fds)
        _close(extra)
        return found

    def _asked(self, question: Question, kind: type[A], timeout_s: float, fds: Sequence[int] = ()) -> tuple[A, list[int]]:
        """The answer; TaskError for an error in it, and when there is none. After that it is started again by the next question."""
        try:
            if self._peer is None:
                self._peer = self._begun()
            found, got = self._peer.ask(question, kind, timeout_s, fds)
        except Silence as silence:
            self._peer = None
            raise _silent(question, silence) from None
        if found.error:
            _close(got)
            raise TaskError(found.error, where=found.where, next_step=found.next_step)
        return found, got

    def _begun(self) -> Peer:
        self.starts += 1
        made = Peer(self._argv, self._env, quiet=False)
        try:
            made.tell(self.task)
        except Silence as silence:
            raise _silent(messages.Describe(), silence) from None
        return made


def _silent(question: Question, silence: Silence) -> TaskError:
    doing = {messages.Describe: "drawing inputs", messages.Fill: "drawing inputs", messages.Ask: "judging a result"}
    what = doing.get(type(question), "checking the task" if isinstance(question, messages.Mutate) else "measuring the card")
    case = f", case {question.case}" if isinstance(question, messages.Fill | messages.Ask) else ""
    step = "keepfast check shows its output"
    return TaskError(f"the reference gave no answer while {what}: {silence}", where=f"reference.py{case}", next_step=step)


def _path() -> dict[str, str]:
    """Our own package is found also where the user's PYTHONPATH does not say so."""
    given = settings.reference_environment(1).get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join([*([given] if given else []), *peer.folders("keepfast")])}


def _command(*more: str) -> Argv:
    """Without -s and -P: the human's code imports what it would import in the human's own hands."""
    return lambda fd: (sys.executable, "-m", "keepfast.oracle", str(fd), *more)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
