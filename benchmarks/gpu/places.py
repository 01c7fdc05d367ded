"""Tasks got ready on the card for plans.py, and a thread that captures one kernel after the other for them.

Owns oracles, contents, the workers of that thread and the order in which all of them end. Must not know what is done with a capture.
"""

from __future__ import annotations

import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from units import Unit

from keepfast import shop
from keepfast.device import nvidia
from keepfast.judge.builder import BuiltTree, Site
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.arms import Arms
from keepfast.judge.gpu.asking import Oracle
from keepfast.judge.gpu.check import Stock
from keepfast.judge.gpu.shelf import Shelf
from keepfast.judge.gpu.stages import Stage
from keepfast.judge.gpu.workers import Captured, Pool
from keepfast.model import Machine, Task
from keepfast.station import Station

WARM = 8  # workers: captures follow each other faster than a judge's


class Place:
    """A task on the card, with the cases that are wanted: its oracle, and on the shelf layouts, samples and contents."""

    def __init__(self, task: Task, cases: Collection[str], card: nvidia.Card) -> None:
        self.task, self.card = replace(task, cases=tuple(c for c in task.cases if c.name in cases)), card
        self.oracle = Oracle(self.task, card.visible)  # starts now, is asked later: all of them import torch at the same time
        self.shelf: Shelf | None = None

    def prepare(self, machine: Machine) -> None:
        shelf = Shelf(self.task, self.oracle, machine, self.card.memory_bytes, shop.fresh())
        shelf.draw()
        self.shelf = shelf

    @property
    def stages(self) -> dict[str, Stage]:
        """By case; none when it could not be got ready."""
        return {stage.name: stage for stage in self.shelf.described()} if self.shelf else {}

    def sample(self, case: str) -> bytes:
        assert self.shelf is not None
        return dict(zip(self.stages, self.shelf.samples, strict=True))[case]

    @property
    def stock(self) -> dict[str, Stock]:
        assert self.shelf is not None
        return self.shelf.stock

    def close(self) -> None:
        if self.shelf:
            self.shelf.close()
        self.oracle.close()


class Got(Struct, frozen=True):
    """What the capturing thread hands over: a capture and the tree it was made from, a failure, or what went wrong with us."""

    unit: Unit
    found: Captured | Failure | Exception
    tree: BuiltTree | None
    seconds: float


class Captures(threading.Thread):
    """Captures units one after the other, a few ahead of who takes them. Workers end with the thread that started them, so it owns them."""

    def __init__(self, todo: Sequence[Unit], places: dict[str, Place], station: Station, room: Callable[[Unit], bool]) -> None:
        """`room`: whether there is time for one more."""
        super().__init__(daemon=True)
        self.room = room
        self.todo, self.places, self.station = todo, places, station
        self.made: queue.Queue[Got | None] = queue.Queue(maxsize=2)
        self.over = threading.Event()

    def run(self) -> None:
        folder = self.station.walls.folder()
        try:
            pool = self.station.pool
            pool.spec = replace(pool.spec, size=WARM)
            for number, unit in enumerate(self.todo):
                if self.over.is_set() or not self.room(unit):
                    break
                began = time.monotonic()
                found, tree = self._captured(unit, pool, folder / f"{number}")
                self.made.put(Got(unit, found, tree, time.monotonic() - began))
            pool.close()
        except Exception as error:  # noqa: BLE001  nobody else would hear of it
            print(f"captures ended: {error}", file=sys.stderr, flush=True)
        finally:
            self.made.put(None)
            shutil.rmtree(folder, ignore_errors=True)

    def _captured(self, unit: Unit, pool: Pool, folder: Path) -> tuple[Captured | Failure | Exception, BuiltTree | None]:
        place = self.places[unit.task]
        try:
            folder.mkdir(mode=0o711)
            arms = Arms(place.task, Site(self.station.walls, self.station.arch), folder, pool)
            arms.stages, arms.samples = (place.stages[unit.case],), (place.sample(unit.case),)
            artifact = arms.build(unit.arm)
            return (artifact, None) if isinstance(artifact, Failure) else (arms.capture(artifact, 0), artifact.tree)
        except Exception as error:  # noqa: BLE001  it becomes this unit's line, and the next one goes on
            return error, None

    def __iter__(self) -> Iterator[Got]:
        while (got := self.made.get()) is not None:
            yield got

    def stop(self) -> None:
        """Let it end; what it still hands over is dropped. May be called again."""
        self.over.set()
        while self.is_alive():
            with suppress(queue.Empty):
                self.made.get(timeout=0.1)
