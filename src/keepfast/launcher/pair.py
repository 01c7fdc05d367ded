"""Two plans on the same physical memory, launched in turns on the same contents, timed and compared.

A slot is one arm alone: its mapping open, the other's closed. Before each launch, outside its window, contents are refreshed,
outputs poisoned, the L2 washed, shared memory overwritten; after it all outputs are kept (first arm of a pair) or compared
(second). Must not know verdict rules.
"""

from __future__ import annotations

import ctypes
import math
import statistics
from random import Random
from typing import Any

from msgspec import Struct

from keepfast.launcher.driver import BLOCK, Device, Kernels, Range, ok, physical, private
from keepfast.launcher.plan import Plan
from keepfast.launcher.rebuild import Graph


class Sets(Struct, frozen=True):
    """Where a plan's sets lie: `base`, then `calls` inputs of `in_rows` rows, then `calls` outputs of `out_rows`; rows of `width` bytes."""

    base: int
    calls: int
    in_rows: int
    out_rows: int
    width: int

    @property
    def in_bytes(self) -> int:
        return self.calls * self.in_rows * self.width

    @property
    def out_bytes(self) -> int:
        return self.calls * self.out_rows * self.width

    @property
    def size(self) -> int:
        """Bytes of shared physical memory, whole blocks."""
        return -(-(self.in_bytes + self.out_bytes) // BLOCK) * BLOCK


class Timed(Struct, frozen=True):
    """One round. Times in ms a launch, in the order of the pairs; `differ` and `poisoned` count 16-byte granules over all launches."""

    d: float
    pairs: tuple[float, ...]
    first_ms: float
    second_ms: float
    launches: int
    differ: int
    poisoned: int
    sentinel_ms: tuple[float, ...]


class Arm:
    """A plan mapped at its own addresses, its sets on the shared memory."""

    def __init__(self, device: Device, plan: Plan, sets: Sets, shared: Any) -> None:
        (segment,) = plan.segments
        self.sets, self.range = sets, Range(device, segment.address, segment.size)
        self.range.map(sets.base, sets.size, shared)
        rest = segment.address + segment.size - (sets.base + sets.size)
        if rest > 0:
            size = -(-rest // BLOCK) * BLOCK
            self.range.map(sets.base + sets.size, size, physical(device, size))
        self.range.access(True)
        self.graph = Graph(device, plan)


class Pair:
    """`subject` and `opponent` in one process. `pool` rows of content, random bytes of the caller's choosing."""

    SLOT = 4  # launches a slot

    def __init__(self, device: Device, plans: tuple[Plan, Plan], sets: tuple[Sets, Sets], pool: bytes, rng: Random) -> None:
        self.device, self.rng, self.kernels = device, rng, Kernels(device)
        self.sets = sets[0]
        shared = physical(device, self.sets.size)
        first = rng.randrange(2)
        made = {i: Arm(device, plans[i], sets[i], shared) for i in (first, 1 - first)}
        self.arms = made[0], made[1]
        self._build((first, 1 - first, 1 - first, first))
        self.pool, self.pool_rows = private(device, len(pool)), len(pool) // self.sets.width
        device.write(self.pool, pool)
        self.kept = private(device, self.SLOT * self.sets.out_bytes)
        self.washed, self.counts = private(device, 2 * device.l2_bytes), private(device, BLOCK)
        device.write(self.counts, bytes(32))
        self.half = 0  # which of an arm's executables is launched
        self.pattern = 0x7FC00000 | rng.getrandbits(22)

    def _build(self, turns: tuple[int, ...]) -> None:
        """Two executables an arm, in the order first, second, second, first: the one made first is a little faster, whatever it holds."""
        for half in (turns[:2], turns[2:]):
            order = list(range(self.sets.calls))
            self.rng.shuffle(order)
            for which in half:
                self.arms[which].graph.build(order)

    def round(self, blocks: int) -> Timed:
        """`blocks` times ABBA or BAAB; the first block warms and is not counted."""
        ratios: list[float] = []
        times: tuple[list[float], list[float]] = ([], [])
        sentinels: list[float] = []
        for block in range(-1, blocks):
            first = self.rng.randrange(2)
            halves = []
            for half, order in enumerate(((first, 1 - first), (1 - first, first))):
                nonces = [self.rng.getrandbits(64) for _ in range(self.SLOT)]
                self.half = (block + half) % 2
                ms = {arm: self._slot(arm, nonces, keep=place == 0, sentinels=sentinels) for place, arm in enumerate(order)}
                halves.append(math.log(sum(ms[0]) / sum(ms[1])))
                if block >= 0:
                    times[0].extend(ms[0])
                    times[1].extend(ms[1])
            if block >= 0:
                ratios.append(sum(halves) / 2)
        differ, poisoned = (int.from_bytes(self.device.read(self.counts + 8 * i, 8), "little") for i in range(2))
        return Timed(
            d=statistics.median(ratios),
            pairs=tuple(ratios),
            first_ms=statistics.median(times[0]),
            second_ms=statistics.median(times[1]),
            launches=4 * self.SLOT * (blocks + 1),
            differ=differ,
            poisoned=poisoned,
            sentinel_ms=(min(sentinels), statistics.median(sentinels), max(sentinels)),
        )

    def _slot(self, which: int, nonces: list[int], *, keep: bool, sentinels: list[float]) -> list[float]:
        device = self.device
        device.synchronise()
        self.arms[1 - which].range.access(False)
        self.arms[which].range.access(True)
        events = [(device.event(), device.event()) for _ in nonces]
        watch = device.event(), device.event()
        device.record(watch[0])
        self.kernels.launch("sentinel", [ctypes.c_ulonglong(20_000), ctypes.c_void_p(self.counts + 64)])
        device.record(watch[1])
        for number, nonce in enumerate(nonces):
            self._prepare(self.arms[which].sets, nonce)
            device.record(events[number][0])
            self.arms[which].graph.launch(self.half)
            device.record(events[number][1])
            self._after(self.arms[which].sets, number, keep)
        device.synchronise()
        sentinels.append(device.elapsed_ms(*watch))
        return [device.elapsed_ms(*pair) for pair in events]

    def _prepare(self, sets: Sets, nonce: int) -> None:
        u64, u32, pointer = ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_void_p
        rows, granules = sets.calls * sets.in_rows, sets.width // 16
        launch = self.kernels.launch
        launch("refresh", [pointer(sets.base), pointer(self.pool), u64(rows), u32(granules), u32(self.pool_rows), u64(nonce)])
        launch("poison", [pointer(sets.base + sets.in_bytes), u64(sets.out_bytes // 16), u32(self.pattern)])
        launch("wash", [pointer(self.washed), u64(2 * self.device.l2_bytes // 16), pointer(self.counts + 64)])
        shared = self.device.shared_bytes
        launch("scrub", [u32(shared // 4)], blocks=self.device.processors, shared=shared)
        ok(self.device.cu.cuCtxResetPersistingL2Cache(), "cuCtxResetPersistingL2Cache")

    def _after(self, sets: Sets, number: int, keep: bool) -> None:
        outputs, kept = sets.base + sets.in_bytes, self.kept + number * sets.out_bytes
        u64, u32, pointer = ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_void_p
        if keep:
            self.kernels.launch("copy", [pointer(kept), pointer(outputs), u64(sets.out_bytes // 16)])
        else:
            arguments = [pointer(outputs), pointer(kept), u64(sets.out_bytes // 16), u32(self.pattern), pointer(self.counts)]
            self.kernels.launch("compare", arguments)
