"""The process: one task, then questions one after the other, each answered whatever the human's code does.

An error of reference.py is a reply with its place in the file. Only a CUDA error that the context keeps ends the process, after
it was said. Must not know what answers mean.
"""

from __future__ import annotations

import os
import select
import traceback
from collections.abc import Sequence
from pathlib import Path
from socket import socket
from typing import Any, cast

import torch
from msgspec import Struct

from keepfast.errors import KeepfastError, MachineError
from keepfast.gpu import messages
from keepfast.gpu.messages import Answer, Ask, Describe, Described, Fill, Filled, Measured, Mutate, Mutated, Question
from keepfast.model import Task
from keepfast.oracle.answers import Oracle, Reply

FRAME_S = 30.0  # for a record that has begun to arrive
CHECK = "keepfast check   says more"


class Failure(Struct, frozen=True):
    """What went wrong, for people."""

    error: str
    where: str
    next_step: str


class Worker:
    """Answers questions about one task. reference.py is loaded ahead of the first one; if that fails, each is answered with why."""

    def __init__(self, task: Task, device: str) -> None:
        self.task, self.device = task, device
        self.oracle: Oracle | None = None
        self.failure: Failure | None = None

    def start(self) -> None:
        try:
            if self.device != "cpu":
                torch.cuda.set_device(self.device)
                torch.zeros(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise MachineError(f"torch cannot use {self.device}: {error}", next_step="keepfast doctor") from error
        self.oracle = Oracle(self.task, self.device)

    def reply(self, question: Question | None, fds: Sequence[int]) -> tuple[Reply | None, list[int]]:
        """The answer to a question, or nothing after starting, which is what None asks for."""
        self.failure = None
        try:
            if self.oracle is None:
                self.start()
            if question is None or self.oracle is None:
                return None, []
            found = self.oracle.answer(question, fds)
            self._settle()
            return found
        except (Exception, SystemExit) as error:  # noqa: BLE001  the human's code may raise anything; it is said, not hidden
            self.failure = said(error, self.task.folder, self.oracle.reference.at if self.oracle is not None else "")
            return (failed(question, self.failure) if question is not None else None), []

    def _settle(self) -> None:
        """Faults of kernels show here, and memory goes back to the launchers."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()

    @property
    def broken(self) -> bool:
        """Whether this process can no longer use its GPU."""
        if self.failure is None or self.device == "cpu":
            return False
        try:
            torch.zeros(1, device=self.device).item()
            self._settle()
        except RuntimeError:
            return self.oracle is not None
        return False


def serve(channel: socket, device: str) -> None:
    """Until the channel is closed (wire.Closed), or the GPU cannot be used any more."""
    task, fds = messages.receive(channel, Task, timeout_s=FRAME_S)
    _close(fds)
    worker = Worker(task, device)
    worker.reply(None, [])
    while True:
        select.select([channel], [], [])  # a judge may think for hours
        question, fds = messages.receive(channel, cast(Any, Question), timeout_s=FRAME_S)
        try:
            reply, handed = worker.reply(question, fds)
        finally:
            _close(fds)
        try:
            messages.send(channel, cast(Struct, reply), handed)
        finally:
            _close(handed)
        if worker.broken:
            return


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def failed(question: Question, failure: Failure) -> Reply:
    """The reply to a question that could not be answered."""
    kinds = ((Describe, Described), (Fill, Filled), (Ask, Answer), (Mutate, Mutated))
    kind: Any = next((reply for asked, reply in kinds if isinstance(question, asked)), Measured)
    return cast(Reply, kind(error=failure.error, where=failure.where, next_step=failure.next_step))


def said(error: BaseException, folder: str, case: str) -> Failure:
    """An exception in words, with the place in reference.py or in a file beside it."""
    if isinstance(error, KeepfastError):
        return Failure(error.what, error.where, error.next_step)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(folder)]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else _syntax(error) or "reference.py"
    where = f"{place}, case {case}" if case else place
    if isinstance(error, torch.cuda.OutOfMemoryError):
        first = str(error).partition(".")[0]
        return Failure(
            f"the GPU's memory is not enough: {first}", where, "make the case smaller, or free memory of other processes (nvidia-smi)"
        )
    return Failure(f"{type(error).__name__}: {error}", where, f"mend it, then: {CHECK}")


def _syntax(error: BaseException) -> str:
    """Where a file that Python cannot read goes wrong."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    return ""
