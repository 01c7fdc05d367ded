"""A slot: one arm alone, a few launches queued one after the other, each on contents of its own, then one wait.

Outside the window of each launch: what the arm prepares from its weights, contents, poison, washing before it; inspection, keeping or
comparing after it. Must not know which arm is judged, or what the numbers decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from msgspec import Struct

from keepfast.launcher.arm import Arm, Contents
from keepfast.launcher.case import Case
from keepfast.launcher.sizing import LAUNCHES

KEEP, AGAINST, NEITHER = "keep", "against", ""
NAN, DRAWN = 0x7FC07FC0, 0x003F003F  # no number in float64, float32, float16 and bfloat16; the bits of it that are drawn


class Turn(Struct, frozen=True):
    """What happens around one launch. `audit`: the call that goes into the audit memory, -1 for none. `only`: the calls that are launched,
    None for all."""

    nonce: int
    verbatim: bool = False
    results: str = NEITHER
    audit: int = -1
    only: frozenset[int] | None = None


class Seen(Struct, frozen=True):
    """What one launch left in its counters: the calls that were counted. Of calls that were not launched only `inputs` and `early`."""

    inputs: tuple[int, ...]  # calls whose arguments, apart from the written ones, changed
    unwritten: tuple[int, ...]
    early: tuple[int, ...]
    odd: tuple[int, ...]
    differing: tuple[int, ...]

    @property
    def wrong(self) -> bool:
        """Something that no right launch does, compared with what was kept."""
        return any((self.inputs, self.unwritten, self.early, self.odd))


class Slot(Struct, frozen=True):
    ms: tuple[float, ...]
    seen: tuple[Seen, ...]
    sentinel_ms: float
    span_ms: float  # of the whole slot by the card's events
    host_ms: float  # and by the host's clock


class Last(Struct, frozen=True):
    """The launch whose results are still there: its arm, how many calls it had, on which contents."""

    arm: int
    calls: int
    contents: Contents


Body = Callable[[Arm, int], None]
"""Queues what is timed: the arm, and which launch of the slot it is."""


class Slots:
    def __init__(self, case: Case, rng: Random, clock: Callable[[], float]) -> None:
        """`clock`: the host's, in seconds."""
        self.case, self.device, self.rng, self.clock = case, case.device, rng, clock
        self.events = [self.device.event() for _ in range(4 + 2 * LAUNCHES)]
        self.last: Last | None = None

    def run(self, arm: Arm, turns: Sequence[Turn], calls: int, body: Body) -> Slot:
        self.last = None
        self.case.only(arm)
        if arm.plan.prepare:
            arm.build_prepared(self.rng.sample(range(arm.plan.calls), arm.plan.calls))
        start, end, first, second = self.events[:4]
        pattern = NAN | self.rng.getrandbits(32) & DRAWN
        began = self.clock()
        self.device.record(start)
        arm.mapped.wipe(pattern)
        self.case.clear_counters()
        self.device.record(first)
        self.case.sentinel.go()
        self.device.record(second)
        for number, turn in enumerate(turns):
            self._one(arm, number, (turn, Contents(turn.nonce, turn.verbatim, pattern)), calls, body)
        self.device.record(end)
        self.device.synchronise()
        host_ms = 1e3 * (self.clock() - began)
        self.last = Last(arm.index, calls, Contents(turns[-1].nonce, turns[-1].verbatim, pattern))
        elapsed = self.device.elapsed_ms
        ms = tuple(elapsed(*self._pair(number)) for number in range(len(turns)))
        return Slot(ms, self._seen(turns, calls), elapsed(first, second), elapsed(start, end), host_ms)

    def _pair(self, number: int) -> tuple[Any, Any]:
        return self.events[4 + 2 * number], self.events[5 + 2 * number]

    def _one(self, arm: Arm, number: int, what: tuple[Turn, Contents], calls: int, body: Body) -> None:
        case, (turn, contents), (first, second) = self.case, what, self._pair(number)
        arm.prepare(contents)
        arm.hands.give(contents, calls)
        case.settle()
        self.device.record(first)
        body(arm, number)
        self.device.record(second)
        arm.hands.inspect(case.counters(number), case.counts, calls)
        if turn.only is not None:
            arm.hands.early(0, calls, case.counters(number), case.counts)
        if turn.results == KEEP:
            arm.hands.keep(case.kept(number), calls)
        if turn.results == AGAINST:
            arm.hands.compare(case.kept(number), case.counters(number), case.counts, calls)
        if turn.audit >= 0:
            arm.hands.audit(contents, turn.audit, case.audit.address)

    def _seen(self, turns: Sequence[Turn], calls: int) -> tuple[Seen, ...]:
        """The counters lie in memory that no plan can reach, and are read when everything has ended."""
        counts, launches = self.case.counts, len(turns)
        data = np.frombuffer(self.device.read(self.case.counters(0), launches * counts.bytes), np.uint32)

        def hit(words: np.ndarray, section: str) -> tuple[int, ...]:
            return tuple(int(i) for i in np.flatnonzero(counts.read(words, section)[:calls]))

        rows = [data[i * counts.words : (i + 1) * counts.words] for i in range(launches)]
        return tuple(_of(turn, Seen(*(hit(row, section) for section in counts.SECTIONS))) for turn, row in zip(turns, rows, strict=True))


def _of(turn: Turn, seen: Seen) -> Seen:
    """What counts where only some calls were launched: the others have touched results, and nothing that was asked for."""
    only = turn.only
    if only is None:
        return seen

    def launched(calls: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(call for call in calls if call in only)

    early = tuple(call for call in seen.early if call not in only)
    return Seen(seen.inputs, launched(seen.unwritten), early, launched(seen.odd), launched(seen.differing))
