"""What lies ready for an evaluation: the layout of every case, one sample of each, and contents drawn from fresh seeds.

Owns the descriptors of the contents: those of the draw before are closed by the next one. Must not know candidates or verdicts.
"""

from __future__ import annotations

import os
from random import Random

from keepfast import wire
from keepfast.judge.gpu.asking import Oracle
from keepfast.judge.gpu.check import Stock
from keepfast.judge.gpu.stages import Stage, stages
from keepfast.model import Machine, Task


class Shelf:
    """Close it, and no descriptor is left."""

    def __init__(self, task: Task, oracle: Oracle, machine: Machine, memory: int, rng: Random) -> None:
        """`memory`: bytes of the card."""
        self.task, self.oracle, self.machine, self.memory, self.rng = task, oracle, machine, memory, rng
        self.stages: tuple[Stage, ...] = ()
        self.samples: tuple[bytes, ...] = ()
        self._base: tuple[bytes, ...] = ()  # those of generation 0
        self.generation = 0  # of what the host may read: 0 for all captures but those of a confirm, which have their own
        self._meta: dict[str, tuple[int, ...]] = {}  # its seed by case, in the generation in use; for cases that have such tensors
        self._host: dict[str, tuple[int, ...]] = {}  # the same of generation 0
        self._generations = 0
        self.stock: dict[str, Stock] = {}  # by case: the contents in use

    def close(self) -> None:
        """May be called again."""
        for stock in self.stock.values():
            os.close(stock.fd)
        self.stock = {}

    def described(self) -> tuple[Stage, ...]:
        """The stages of all cases; the oracle describes them, and draws a sample of each, when they are first needed."""
        if not self.stages:
            made = stages(self.task, self.oracle.describe(), self.machine, self.memory)
            self._meta = self._host = self._seeds(made)
            self.samples = self._base = tuple(self._sample(s) for s in made)
            self.stages = made
        return self.stages

    def dtypes(self) -> dict[str, str]:
        """Element type of every tensor by name, as inputs() and reference() return them: what C declarations are made of."""
        layout = self.described()[0].layout
        given = {g.name: g.tensor.dtype for g in layout.given if g.tensor is not None}
        return given | {output.name: output.dtype for output in layout.outputs}

    def draw(self, *, confirm: bool = False) -> None:
        """New contents for every case. What the host may read is new in them for a confirm, and so are the samples that captures run on;
        otherwise it is what it was for all captures before."""
        self.close()
        made = self.described()
        if self._host and (confirm or self.generation):
            self._turn(made, confirm=confirm)
        for stage in made:
            seeds = tuple(self._seed() for _ in range(stage.draws))
            self.stock[stage.name] = Stock(*self.oracle.fill(stage.name, seeds, meta=self._meta.get(stage.name, ())))

    def _turn(self, made: tuple[Stage, ...], *, confirm: bool) -> None:
        self._generations += confirm
        self.generation = self._generations if confirm else 0
        self._meta = self._seeds(made) if confirm else self._host
        self.samples = tuple(self._sample(s) for s in made) if confirm else self._base

    def _seeds(self, made: tuple[Stage, ...]) -> dict[str, tuple[int, ...]]:
        return {stage.name: self._seed() for stage in made if _has_meta(stage)}

    def _sample(self, stage: Stage) -> bytes:
        """The image of one throwaway set: what captures run on."""
        _, fd = self.oracle.fill(stage.name, (self._seed(),), kind="host", meta=self._meta.get(stage.name, ()))
        try:
            return wire.read(fd, stage.layout.set_bytes)
        finally:
            os.close(fd)

    def _seed(self) -> tuple[int, ...]:
        return tuple(self.rng.getrandbits(32) for _ in range(4))


def _has_meta(stage: Stage) -> bool:
    return any(given.tensor is not None and given.tensor.role == "meta" for given in stage.layout.given)
