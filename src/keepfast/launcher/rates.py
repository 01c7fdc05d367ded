"""What this card and driver do by themselves: latencies of launches and graph nodes, bandwidths of plain kernels, sizes.

Works without a case. Must not know what the numbers are used for.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any

from keepfast.gpu.driver import BLOCK, Device, ok
from keepfast.launcher.kernels import Kernels, Launch
from keepfast.launcher.memory import Private

LARGEST = 2 << 30  # bytes of each of two buffers
REPEATS = 9
NODES = 400
BURST = 200


class Rates:
    def __init__(self, device: Device, kernels: Kernels, rng: Random) -> None:
        self.device, self.kernels, self.rng = device, kernels, rng
        self.first, self.last = device.event(), device.event()
        self.nothing = kernels.launch("nothing", [], (1, 1, 1))

    def measure(self) -> tuple[tuple[str, float], ...]:
        free, total = self.device.memory()
        size = max(BLOCK, min(LARGEST, free // 4) // BLOCK * BLOCK)
        with ExitStack() as stack:
            memory = Private(self.device, {"a": size, "b": size, "sink": 8}, self.rng, stack).at
            known = [*self._bandwidths(memory, size), ("sentinel_ms", self._ms(self.kernels.sentinel(memory["sink"]).go))]
        sizes = [("l2_bytes", self.device.l2_bytes), ("processors", self.device.processors), ("memory_bytes", total)]
        return tuple((name, float(value)) for name, value in (*self._latencies(), *known, *sizes))

    def _ms(self, work: Callable[[], None]) -> float:
        """Median over some repetitions, by the card's events, after one that warms."""
        found = []
        for _ in range(REPEATS + 1):
            self.device.record(self.first)
            work()
            self.device.record(self.last)
            self.device.synchronise()
            found.append(self.device.elapsed_ms(self.first, self.last))
        return statistics.median(found[1:])

    # ---------------------------------------------------------------------------------------- latencies

    def _latencies(self) -> list[tuple[str, float]]:
        chain, single = self._chain(NODES), self._chain(1)
        found = [
            ("launch_us", 1e3 * self._ms(lambda: self._burst(self.nothing.go)) / BURST),
            ("launch_and_wait_us", self._waited_us(self.nothing)),
            ("graph_launch_us", 1e3 * self._ms(lambda: self._burst(lambda: self._launch(single))) / BURST),
            ("graph_node_us", 1e3 * self._ms(lambda: self._launch(chain)) / NODES),
        ]
        for executable in (chain, single):
            ok(self.device.cu.cuGraphExecDestroy(executable), "cuGraphExecDestroy")
        return found

    def _burst(self, work: Callable[[], None]) -> None:
        for _ in range(BURST):
            work()

    def _waited_us(self, launch: Launch) -> float:
        """By the host's clock: queue a kernel that does nothing, and wait for it."""
        found = []
        for _ in range(BURST):
            began = time.perf_counter()
            launch.go()
            self.device.synchronise()
            found.append(time.perf_counter() - began)
        return 1e6 * statistics.median(found)

    def _launch(self, executable: Any) -> None:
        ok(self.device.cu.cuGraphLaunch(executable, self.device.stream), "cuGraphLaunch")

    def _chain(self, nodes: int) -> Any:
        cu = self.device.cu
        graph = ok(cu.cuGraphCreate(0), "cuGraphCreate")
        last: list[Any] = []
        for _ in range(nodes):
            last = [ok(cu.cuGraphAddKernelNode(graph, last, len(last), self.nothing.node()), "cuGraphAddKernelNode")]
        made = ok(cu.cuGraphInstantiate(graph, 0), "cuGraphInstantiate")
        ok(cu.cuGraphDestroy(graph), "cuGraphDestroy")
        return made

    # ---------------------------------------------------------------------------------------- bandwidths

    def _bandwidths(self, at: dict[str, int], size: int) -> Sequence[tuple[str, float]]:
        pointer, granules = ctypes.c_void_p, ctypes.c_uint64(size // 16)
        grid = (32 * self.device.processors, 1, 1)
        copy = self.kernels.launch("copy", [pointer(at["a"]), pointer(at["b"]), granules], grid)
        read = self.kernels.launch("wash", [pointer(at["a"]), granules, pointer(at["sink"])], grid)
        fill = self.kernels.launch("fill", [pointer(at["a"]), granules, ctypes.c_uint64(0)], grid)
        works = (("copy_GBps", copy, 2), ("read_GBps", read, 1), ("write_GBps", fill, 1))
        return [(name, times * size / (1e6 * self._ms(work.go))) for name, work, times in works]
