"""The judge's side of the reference worker: asks for draws, results and comparisons, and copies the answers.

Must not import the human's code. Errors of reference.py are `TaskError`s with its file and line.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket, socketpair
from typing import TYPE_CHECKING, Any

import msgspec

from keepfast import settings, wire
from keepfast.errors import TaskError
from keepfast.judge import sets
from keepfast.judge.oracle_records import Answer, Job, Piece, Request
from keepfast.model import Task

if TYPE_CHECKING:
    import numpy as np

TIMEOUT_S = 120.0
STDERR = 2
AT_ONCE = wire.MAX_FDS // 2  # draws a worker is asked about: each takes two descriptors of one message


class Results(msgspec.Struct, frozen=True):
    """Expected results of one call, in `Signature.results` order."""

    working: tuple[Any, ...]
    exact: tuple[Any, ...]


class Pending:
    """A worker that was given its jobs; `collect` reads the answers and waits for its end."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket, request: Request) -> None:
        self.process, self.channel, self.jobs, self.frozen = process, channel, request.jobs, bool(request.frozen)

    def collect(self) -> list[tuple[Answer, np.ndarray]]:
        try:
            return [self._one() for _ in self.jobs]
        finally:
            self.close()

    def close(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()

    def _one(self) -> tuple[Answer, np.ndarray]:
        import numpy as np

        try:
            raw, fds = wire.receive(self.channel, timeout_s=TIMEOUT_S, max_bytes=1 << 20)
        except wire.WireError as error:
            raise self._silent(error) from None
        found = msgspec.convert(raw, Answer)
        if found.error:
            what, _, step = found.error.partition("\n  ")
            raise TaskError(what, next_step=step)
        memory = np.fromfile(f"/proc/self/fd/{fds[0]}", np.uint8, found.size) if fds else np.empty(0, np.uint8)
        for fd in fds:
            os.close(fd)
        return found, memory

    def _silent(self, error: wire.WireError) -> TaskError:
        """Why there is no answer: how the worker ended, when it has."""
        try:
            status = self.process.wait(1.0) if isinstance(error, wire.Closed) else 0
        except subprocess.TimeoutExpired:
            status = 0
        if status < 0 and self.frozen:
            step = "inputs() must draw what it can compute: indices in range, lengths that fit"
            return TaskError(f"the frozen kernel crashed ({signal.Signals(-status).name})", where="frozen oracle", next_step=step)
        why = f"it was killed by {signal.Signals(-status).name}" if status < 0 else str(error)
        return TaskError(f"the reference worker gave no answer ({why})", where="reference.py", next_step="keepfast check shows its output")


class Reference:
    """Draws and expected results for one task, each batch from a fresh worker."""

    def __init__(self, task: Task, frozen: str = "") -> None:
        self.task, self.frozen = task, frozen

    @property
    def has_compare(self) -> bool:
        """Whether reference.py defines compare(): read as text, since the judge does not import it."""
        source = Path(self.task.folder) / "reference.py"
        return bool(re.search(r"^def compare\(", source.read_text(encoding="utf-8"), re.MULTILINE))

    def ask(self, jobs: Sequence[Job], fds: Sequence[int] = ()) -> Pending:
        ours, theirs = socketpair(AF_UNIX, SOCK_STREAM)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "keepfast.judge.oracle", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=STDERR,  # what reference.py prints is no result of ours
                env=settings.reference_environment(self.task.threads),
            )
        request = Request(self.task, tuple(jobs), self.frozen)
        wire.send(ours, msgspec.to_builtins(request), fds)
        return Pending(process, ours, request)

    def draws(self, jobs: Sequence[Job]) -> list[sets.Draw]:
        return self.as_draws(self.ask(jobs))

    def as_draws(self, pending: Pending) -> list[sets.Draw]:
        jobs = pending.jobs
        draws = [_draw(job, found, memory) for job, (found, memory) in zip(jobs, pending.collect(), strict=True)]
        _alike(draws)
        return draws

    def results(self, draws: Sequence[sets.Draw]) -> list[Results]:
        """Expected results for inputs of our own making (timed sets)."""
        return [found for i in range(0, len(draws), AT_ONCE) for found in self._results(draws[i : i + AT_ONCE])]

    def _results(self, draws: Sequence[sets.Draw]) -> list[Results]:
        jobs = [Job("check", d.case, layout=d.layout, words=d.words) for d in draws]
        fds = [fd for d in draws for fd in (_memfd(d.in_image), _memfd(d.out_image))]
        answers = self._asked(jobs, fds)
        return [Results(_arrays(a.working, m), _arrays(a.exact, m)) for a, m in answers]

    def compare(self, draw: sets.Draw, got: np.ndarray) -> str:
        """The task's own compare() on one call's output region: "" or what is wrong."""
        job = Job("compare", draw.case, layout=draw.layout, words=draw.words)
        ((found, _),) = self._asked([job], [_memfd(draw.in_image), _memfd(draw.out_image), _memfd(got)])
        return found.verdict

    def _asked(self, jobs: Sequence[Job], fds: Sequence[int]) -> list[tuple[Answer, np.ndarray]]:
        try:
            return self.ask(jobs, fds).collect()
        finally:
            for fd in fds:
                os.close(fd)


def _alike(draws: Sequence[sets.Draw]) -> None:
    """TaskError unless all draws of a case lie in memory alike: they take turns in the same buffers."""
    first: dict[str, sets.Draw] = {}
    for draw in draws:
        if first.setdefault(draw.case.name, draw).layout != draw.layout:
            what = "inputs() gave two draws of one case different shapes, strides or dtypes"
            raise TaskError(what, where=f"reference.py, case {draw.case.name}", next_step="let them depend on the case alone, not on rng")


def _memfd(image: np.ndarray) -> int:
    fd = wire.memfd("image", max(image.nbytes, 1))
    data = memoryview(image.tobytes())
    at = 0
    while at < len(data):
        at += os.pwrite(fd, data[at:], at)
    return fd


def _arrays(pieces: Sequence[Piece], memory: np.ndarray) -> tuple[np.ndarray, ...]:
    import numpy as np

    return tuple(np.ndarray(p.shape, p.dtype, memory.data, p.at) for p in pieces)


def _draw(job: Job, found: Answer, memory: np.ndarray) -> sets.Draw:
    layout = found.layout
    if layout is None:
        raise TaskError("the reference worker sent no layout", where="reference.py")
    in_image = memory[found.in_at : found.in_at + layout.in_bytes]
    out_image = memory[found.out_at : found.out_at + layout.out_bytes]
    limit = (found.limit_bytes, found.limit_flops)
    return sets.Draw(
        job.case, layout, found.words, in_image, out_image, _arrays(found.working, memory), _arrays(found.exact, memory), limit
    )
