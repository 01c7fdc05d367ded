"""Shares of GPU time: a chain of calls with events between its nodes, held against the chain that is timed, in which nothing watches.

What happens only in the first call of a launch is not seen in the median over calls and launches. What happens only while it is watched
takes time that the unwatched chain has no room for; who is to lose it is not decided here. Must not know names, origins or rules.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from typing import Any

from keepfast.gpu.driver import ok
from keepfast.gpu.messages import Profiled
from keepfast.launcher.arm import Arm
from keepfast.launcher.case import Case
from keepfast.launcher.slots import Slots, Turn

NODES = 256  # that are watched in one launch
LEAST = 5  # calls, whatever they have of nodes: the first of a launch is to be one of several
PROFILES = 7  # launches
SLACK = 1.1  # of the unwatched time: caches, clocks


class Watch:
    """One profile of one arm."""

    def __init__(self, case: Case, slots: Slots, arm: Arm, rng: Random) -> None:
        self.case, self.slots, self.arm, self.rng = case, slots, arm, rng
        self.device, self.rebuilt = case.device, arm.rebuilt
        self.order = self._order()
        self.nodes = len(self.rebuilt.members[self.order[0]])
        self.width = self.rebuilt.width(self.order[0])

    def _order(self) -> list[int]:
        """Calls that launch as many nodes, in drawn order: all, or as many as may be watched."""
        calls, members = self.arm.plan.calls, self.rebuilt.members
        drawn = self.rng.sample(range(calls), calls)
        alike = [call for call in drawn if len(members[call]) == len(members[drawn[0]])]
        return alike[: max(LEAST, NODES // max(1, len(members[drawn[0]])))]

    def run(self) -> Profiled:
        events = [[self.device.event() for _ in range(self.nodes + 2)] for _ in self.order]
        rows: list[list[float]] = []
        costs: list[float] = []
        unwatched: list[list[float]] = []
        self.case.only(self.arm)
        with ExitStack() as stack:
            made = [stack.enter_context(self.arm.once(executable)) for executable in self._executables(events)]
            made.append(self._timed())
            for _ in range(PROFILES):
                unwatched.append(self._launched(made))
                self._read(events, rows, costs)
        for event in itertools.chain.from_iterable(events):
            ok(self.device.cu.cuEventDestroy(event), "cuEventDestroy")
        times = [statistics.median(column) for column in zip(*rows, strict=True)]
        room = self._room([statistics.median(column) for column in zip(*unwatched, strict=True)], statistics.median(costs))
        return Profiled(self.rebuilt.facts(times, self.order[0]), 1e3 * sum(times), 1e3 * room)

    def _executables(self, events: Sequence[Sequence[Any]]) -> list[Any]:
        """The watched chain; where nodes of a call may run at the same time also the same unwatched, which then is not the timed one."""
        watched = self.rebuilt.in_line(self.order, events)
        return [watched, self.rebuilt.in_line(self.order)] if self.width > 1 else [watched]

    def _timed(self) -> Any:
        calls = self.arm.plan.calls
        self.case.build(calls)
        self.case.only(self.arm)
        return self.arm.chains[calls][0]

    def _launched(self, made: Sequence[Any]) -> list[float]:
        """Each once, in drawn order; ms of a call of those that are not watched, the timed one last."""
        order, calls = self.rng.sample(range(len(made)), len(made)), self.arm.plan.calls
        turns = [Turn(self.rng.getrandbits(64)) for _ in order]
        slot = self.slots.run(self.arm, turns, calls, lambda arm, number: arm.launch(made[order[number]]))
        ms = [slot.ms[order.index(which)] for which in range(len(made))]
        return [*(one / len(self.order) for one in ms[1:-1]), ms[-1] / calls]

    def _read(self, events: Sequence[Sequence[Any]], rows: list[list[float]], costs: list[float]) -> None:
        """ms of every node of every call, less what two events one after the other cost in this launch."""
        gaps = [[self.device.elapsed_ms(a, b) for a, b in itertools.pairwise(mine)] for mine in events]
        cost = statistics.median(call[0] for call in gaps)
        costs.append(cost)
        rows += [[max(0.0, gap - cost) for gap in call[1:]] for call in gaps]

    def _room(self, unwatched: Sequence[float], cost: float) -> float:
        """ms that the nodes of a call can have taken: where they may overlap, as many as fit side by side into the chain that is timed."""
        in_line, timed = unwatched[0], unwatched[-1]
        return SLACK * min(in_line, self.width * timed) + self.nodes * cost
