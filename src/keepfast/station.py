"""The GPU of one command: the card and the three kinds of processes that work on it, each started when it is first needed.

Owns their start and end, and the ceilings they measure together. Must not know how anything is judged.
"""

from __future__ import annotations

import atexit
import importlib.util
from functools import cached_property

from keepfast import native
from keepfast.device import nvidia
from keepfast.device.nvidia_watch import Watcher
from keepfast.errors import MachineError
from keepfast.gpu.layout import up
from keepfast.judge.gpu.asking import Oracle
from keepfast.judge.gpu.launchers import Launchers
from keepfast.judge.gpu.workers import Pool, WorkerSpec
from keepfast.model import Task
from keepfast.walls.base import Walls

WORKER_SHARE = 0.5  # of the card's memory that a capture may map
FIT_S = 60.0  # how long a busy card is waited for
WARM = 4  # capture workers kept ready


class Station:
    """Closed at the end of the process at the latest."""

    def __init__(self, task: Task, walls: Walls, card: nvidia.Card) -> None:
        self.task, self.walls, self.card = task, walls, card
        atexit.register(self.close)

    @property
    def memory(self) -> int:
        """Bytes of the card."""
        return self.card.memory_bytes

    @property
    def uuid(self) -> str:
        return self.card.uuid

    @property
    def arch(self) -> str:
        """As in "sm_90"."""
        return "sm_{}{}".format(*self.card.capability)

    def fit(self) -> None:
        """Wait until nobody else computes on the card; MachineError that says who still does, or why it is slow."""
        if why := self.watcher.fit(FIT_S) or self.watcher.before():
            step = "stop what else runs on the card, or let it cool; keepfast doctor   says more"
            raise MachineError(f"the card is not fit to measure on: {'; '.join(why)}", next_step=step)

    def unfit(self) -> str:
        """Why what was measured since `fit` or the last call does not count, or ""."""
        return "; ".join(self.watcher.after())

    @cached_property
    def watcher(self) -> Watcher:
        return Watcher(self.card.uuid)

    @cached_property
    def oracle(self) -> Oracle:
        return Oracle(self.task, self.card.visible)

    @cached_property
    def launchers(self) -> Launchers:
        return Launchers(self.card.visible)

    @cached_property
    def pool(self) -> Pool:
        """Workers with torch, and Triton where it is installed; `cuda` tasks do without."""
        wanted = () if self.task.languages == ("cuda",) else ("torch", "triton")
        spec = WorkerSpec(
            arena_library=str(native.library("arena")),
            max_bytes=int(WORKER_SHARE * self.memory),
            arena_bytes=up(self.memory, 1 << 36),
            devices=nvidia.nodes(self.card),
            card=self.card.visible,
            libraries=tuple(name for name in wanted if importlib.util.find_spec(name)),
            size=WARM,
        )
        return Pool(self.walls, spec)

    def ceilings(self) -> tuple[tuple[str, float], ...]:
        """Measured limits of the card, by name: bandwidths in GB/s, matrix rates, latencies in us, sizes in bytes."""
        measured = self.oracle.measure().numbers
        with self.launchers.start() as launcher:
            return (*measured, *launcher.bench().numbers)

    def close(self) -> None:
        """May be called again."""
        for name in ("pool", "launchers", "oracle", "watcher"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()
