"""Hostile launch plans: handed over by a process in the walls of a capture worker, read by the judge's own reader. Needs no card.

Owns the pool whose workers are `speaker`s. Must not know the corpus, nor what a GPU would make of a plan.
"""

from __future__ import annotations

import shutil
import tomllib
from contextlib import ExitStack
from typing import Any

import msgspec

from keepfast.gpu.layout import Given, Layout, Output, Tensor
from keepfast.gpu.messages import CaseWork
from keepfast.judge.endings import Failure
from keepfast.judge.gpu import peer
from keepfast.judge.gpu.worker import WorkerSpec
from keepfast.judge.gpu.workers import Captured, Pool, Subject, differs
from keepfast.model import File
from keepfast.redteam.entries import Entry
from keepfast.redteam.outcome import Found
from keepfast.walls.base import Walls

PATIENCE_S = 5.0
CALLS = 3
MIB = 1 << 20
X = Given("x", "tensor", Tensor("float32", (1024,), (1,), 0, 0, 4096))
LAYOUT = Layout("main", (("n", 1024),), (X,), (Output("y", "float32", (1024,), 4096),), 4096)


class Plans:
    """Workers for hostile plans, started when the first is tried. Close it, and none is left."""

    def __init__(self, walls: Walls) -> None:
        self.walls, self._stack = walls, ExitStack()
        self._pool: Pool | None = None

    def close(self) -> None:
        self._stack.close()

    def verdict(self, entry: Entry) -> Found:
        """What the reader says to the plan, and, where there is a second capture, to both."""
        wanted = tomllib.loads(entry.source)
        first = self._captured(wanted.get("first", {}))
        if isinstance(first, Failure):
            return _refused(first)
        if "second" not in wanted:
            return Found(False, "a plan")
        again = self._captured(wanted["second"])
        failure = again if isinstance(again, Failure) else differs(first, again)
        return Found(False, "two plans alike") if failure is None else _refused(failure)

    def _captured(self, wanted: dict[str, Any]) -> Captured | Failure:
        program = File("plan.json", msgspec.json.encode(wanted))
        subject = Subject("triton", "plan.json", "kernel", (program,), (CaseWork(LAYOUT, CALLS),), (b"",))
        return self._workers().capture(subject, PATIENCE_S)

    def _workers(self) -> Pool:
        if self._pool is None:
            folder = self.walls.folder()
            self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
            library = folder / "arena.so"
            library.write_bytes(b"")
            spec = WorkerSpec(str(library), max_bytes=1 << 30, size=2, scratch_bytes=64 * MIB)
            self._pool = self._stack.enter_context(Pool(self.walls, spec, peer.command("keepfast.redteam.speaker")))
        return self._pool


def _refused(failure: Failure) -> Found:
    return Found(True, failure.reason.value, "plan", failure.detail)
