"""What the judge asks of an open case: Run, Audit, Time, Solo, Profile, Wind.

Must not know verdict rules or how messages travel.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from msgspec.structs import replace

from keepfast.gpu.messages import Ahead, Audit, Odd, Profile, Profiled, Ran, Run, Solo, Soloed, Time, Timed, Wind, Wound
from keepfast.launcher.arm import Arm
from keepfast.launcher.case import Case
from keepfast.launcher.faults import Failed, asked
from keepfast.launcher.profile import Watch
from keepfast.launcher.sizing import LAUNCHES
from keepfast.launcher.slots import AGAINST, KEEP, NEITHER, Body, Seen, Slot, Slots, Turn
from keepfast.launcher.winding import Winding

MOST_ODD = 8
Part = tuple[frozenset[int], Body]  # some of the calls, and what launches them


class Bench:
    """An open case. `running`: the arm whose kernels were launched last, -1 before the first."""

    def __init__(self, case: Case, rng: Random, clock: Callable[[], float] = time.perf_counter) -> None:
        self.case, self.rng, self.clock = case, rng, clock
        self.slots = Slots(case, rng, clock)
        self.running = -1
        self.kept = 0  # calls whose results are kept of the last Run that said so

    def _arm(self, index: int, calls: int) -> Arm:
        arms = self.case.arms
        asked(0 <= index < len(arms), f"arm {index} of {len(arms)}")
        most = arms[index].plan.calls
        asked(1 <= calls <= most, f"{calls} calls; the plan of arm {index} has {most}")
        self.running = index
        return arms[index]

    # ---------------------------------------------------------------------------------------- Run, Audit

    def run(self, order: Run) -> Ran:
        arm = self._arm(order.arm, order.calls)
        asked(not (order.keep and order.against), "one launch cannot be kept and compared")
        asked(not order.against or self.kept >= order.calls, f"results of {self.kept} calls are kept, of {order.calls} are asked for")
        asked(not order.some or not (order.alone or order.keep), "a chain of some calls is not alone, and not kept")
        results = KEEP if order.keep else AGAINST if order.against else NEITHER
        turn = Turn(order.nonce, order.verbatim, results)
        if order.some:
            with self.part(arm, order.calls, order.some) as (only, body):
                slot = self.slots.run(arm, [replace(turn, only=only)], order.calls, body)
        else:
            slot = self.slots.run(arm, [turn], order.calls, self._alone(arm, order.calls) if order.alone else self.chained(order.calls))
        self.kept = order.calls if order.keep else self.kept
        return ran(slot.ms[0], slot.seen[0])

    def chained(self, calls: int, which: int = 0) -> Body:
        self.case.build(calls)
        return lambda arm, number: arm.launch(arm.chains[calls][which % len(arm.chains[calls])])

    @contextmanager
    def part(self, arm: Arm, calls: int, some: int) -> Iterator[Part]:
        """A chain of `some` of the calls, drawn: nothing that the arm can see tells which, or that there are others."""
        asked(0 < some < calls, f"a chain of {some} of {calls} calls")
        self.case.only(arm)
        order = self.rng.sample(range(calls), some)
        with arm.once(arm.rebuilt.chain(order)) as executable:
            yield frozenset(order), lambda arm, number: arm.launch(executable)

    def _alone(self, arm: Arm, calls: int) -> Body:
        """Each call in a graph of its own, in drawn order; before each, whether its results were touched."""
        self.case.only(arm)
        order = self.rng.sample(range(calls), calls)
        executables = [(call, arm.single(call)) for call in order]

        def body(arm: Arm, number: int) -> None:
            for call, executable in executables:
                arm.hands.early(call, 1, self.case.counters(number), self.case.counts)
                arm.launch(executable)

        return body

    def audit(self, order: Audit) -> None:
        arm, last = self._arm(order.arm, order.index + 1), self.slots.last
        if last is None or last.arm != order.arm or order.index >= last.calls:
            raise Failed("machine", f"no results of call {order.index} of arm {order.arm}: Audit comes right after a Run of that call")
        arm.hands.audit(last.contents, order.index, self.case.audit.address)
        self.case.device.synchronise()
        self.case.audit.flush()

    # ---------------------------------------------------------------------------------------- Solo, Profile, Wind

    def solo(self, order: Solo) -> Soloed:
        arm = self._arm(order.arm, order.calls)
        asked(order.launches >= 1, "no launches")
        body, ms = self.chained(order.calls), list[float]()
        for number in range(-1, -(-order.launches // LAUNCHES)):  # the first warms
            turns = [Turn(self.rng.getrandbits(64)) for _ in range(LAUNCHES)]
            slot = self.slots.run(arm, turns, order.calls, body)
            ms += slot.ms if number >= 0 else ()
        return Soloed(statistics.median(ms[: order.launches]))

    def profile(self, order: Profile) -> Profiled:
        return Watch(self.case, self.slots, self._arm(order.arm, 1), self.rng).run()

    def wind(self, order: Wind) -> Wound:
        arm = self._arm(order.arm, order.calls)
        asked(self.kept >= order.calls, f"results of {self.kept} calls are kept, of {order.calls} are asked for")
        found = Winding(self.case, self.slots, arm, self.rng)
        changed = found.look(order.calls)
        ahead: list[Ahead] = []
        for wound, body in found.bodies(order.calls):
            slot = self.slots.run(arm, [Turn(order.nonce, results=AGAINST)], order.calls, body)
            ahead.append(Ahead(wound, ran(slot.ms[0], slot.seen[0])))
            if slot.seen[0].wrong:
                break
        return Wound(changed.counting, changed.numbered, changed.other, tuple(ahead))

    def time(self, order: Time) -> Timed:
        asked(len(self.case.arms) == 2, "a round needs two arms")
        asked(order.blocks >= 1 and 0 <= order.audit < order.calls, f"{order.blocks} blocks, audit of call {order.audit} of {order.calls}")
        for index in (1, 0):
            self._arm(index, order.calls)
        self.kept = 0
        self.case.build(order.calls)
        return Round(self, order).run()


def ran(ms: float, seen: Seen) -> Ran:
    return Ran(ms, seen.unwritten, seen.early, seen.inputs, seen.odd, identical=not seen.differing)


class Round:
    """One round of arm 0, the subject, against arm 1. All counts are over all launches, those that warm included."""

    def __init__(self, bench: Bench, order: Time) -> None:
        self.bench, self.order, self.rng, self.case = bench, order, bench.rng, bench.case
        self.slot = bench.case.launches
        # Which launch of the subject is audited: block, half, launch.
        self.audited = self.rng.randrange(order.blocks), self.rng.randrange(2), self.rng.randrange(self.slot)
        self.ms: tuple[list[float], list[float]] = ([], [])
        self.sentinels: list[float] = []
        self.spans: list[tuple[float, float]] = []
        self.launches = self.differing = self.unwritten = self.inputs = self.early = self.seen_odd = 0
        self.odd: list[Odd] = []

    def run(self) -> Timed:
        began = self.bench.clock()
        pairs = self._some() if self.order.some else self._blocks()
        self.case.audit.flush()
        spans, hosts = zip(*self.spans, strict=True)
        return Timed(
            d=statistics.median(pairs),
            pairs=pairs,
            subject_ms=statistics.median(self.ms[0]),
            opponent_ms=statistics.median(self.ms[1]),
            calls=self.order.calls,
            launches=self.launches,
            odd=tuple(self.odd),
            differing=self.differing,
            unwritten=self.unwritten,
            inputs=self.inputs,
            early=self.early,
            sentinel_ms=(min(self.sentinels), statistics.median(self.sentinels), max(self.sentinels)),
            host_ratio=sum(spans) / sum(hosts),
            seconds=self.bench.clock() - began,
        )

    def _blocks(self) -> tuple[float, ...]:
        return tuple(self._block(block) for block in range(-1, self.order.blocks))[1:]

    def _some(self) -> tuple[float, ...]:
        """The same; before one of the blocks, drawn, there is a chain of some calls. It is built before anything is launched."""
        place, pairs = self.rng.randrange(self.order.blocks), list[float]()
        with self.bench.part(self.case.arms[0], self.order.calls, self.order.some) as part:
            for block in range(-1, self.order.blocks):
                if block == place:
                    self._half_of_some(part)
                pairs.append(self._block(block))
        return tuple(pairs[1:])

    def _half_of_some(self, part: Part) -> None:
        """A half like any other, the opponent first, in which one launch of the subject, drawn, has only some calls. Not timed."""
        only, some = part
        body, drawn = self.bench.chained(self.order.calls, self.rng.randrange(2)), self.rng.randrange(self.slot)
        nonces = [self.rng.getrandbits(64) for _ in range(self.slot)]
        self._note(-1, 1, nonces, self._slot(1, [Turn(nonce, results=KEEP) for nonce in nonces], body))
        turns = [Turn(nonce, results=AGAINST, only=only if n == drawn else None) for n, nonce in enumerate(nonces)]
        self._note(-1, 0, nonces, self._slot(0, turns, lambda arm, n: (some if n == drawn else body)(arm, n)))

    def _block(self, block: int) -> float:
        """ABBA or BAAB: the log-ratio, mean of both halves. Block -1 warms: its times are not counted."""
        first = self.rng.randrange(2)
        return statistics.mean(self._half(block, half, first if half == 0 else 1 - first) for half in range(2))

    def _half(self, block: int, half: int, first: int) -> float:
        """Both arms on the same nonces: the results of the first are kept, those of the second compared."""
        nonces = [self.rng.getrandbits(64) for _ in range(self.slot)]
        body = self.bench.chained(self.order.calls, (block + half) % 2)
        ms = [0.0, 0.0]
        for place, arm in enumerate((first, 1 - first)):
            found = self._slot(arm, [self._launch(n, nonce, place, (block, half, arm)) for n, nonce in enumerate(nonces)], body)
            self._note(block, arm, nonces, found)
            ms[arm] = sum(found.ms)
        return math.log(ms[0] / ms[1])

    def _launch(self, number: int, nonce: int, place: int, where: tuple[int, int, int]) -> Turn:
        drawn = (*where, number) == (*self.audited[:2], 0, self.audited[2])
        return Turn(nonce, results=AGAINST if place else KEEP, audit=self.order.audit if drawn else -1)

    def _slot(self, arm: int, turns: Sequence[Turn], body: Body) -> Slot:
        self.bench.running = arm
        return self.bench.slots.run(self.case.arms[arm], turns, self.order.calls, body)

    def _note(self, block: int, arm: int, nonces: Sequence[int], found: Slot) -> None:
        self.launches += len(nonces)
        if block >= 0:
            self.sentinels.append(found.sentinel_ms)
            self.ms[arm].extend(found.ms)
            self.spans.append((found.span_ms, found.host_ms))
        for nonce, seen in zip(nonces, found.seen, strict=True):
            self._look(arm, nonce, seen)

    def _look(self, arm: int, nonce: int, seen: Seen) -> None:
        self.differing += len(seen.differing)
        for index in seen.odd:
            self._remember(Odd(nonce, index))
        if arm == 0:
            self.unwritten += len(seen.unwritten)
            self.inputs += len(seen.inputs)
            self.early += len(seen.early)

    def _remember(self, odd: Odd) -> None:
        """At most MOST_ODD of all, each as likely as any other."""
        self.seen_odd += 1
        if len(self.odd) < MOST_ODD:
            self.odd.append(odd)
        elif (place := self.rng.randrange(self.seen_odd)) < MOST_ODD:
            self.odd[place] = odd
