"""How a step is run and timed: captured in a CUDA graph and timed by events, or, on a CPU, called and timed by the host's clock.

`Card` is handed `torch.cuda`, so that its flow is tested without a card. Must not know models or arms.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch

from keepfast.engine.torch_seat import Tally
from keepfast.engine.torch_trace import Ran, read
from keepfast.errors import MachineError

Run = Callable[[], Any]
"""One step, with its logits."""
Before = Callable[[], None]
"""What has to be set back before a step. Never inside a graph, never inside what is timed."""

WARM = 3  # steps before a capture: kernels compile, libraries choose and allocate
PROFILED = 2  # steps of a profile on a CPU; on a card one: a second one would go on beyond the place


class Backend(Protocol):
    """`captured`: the step as it will be run again and again."""

    def captured(self, step: Run, before: Before) -> Run: ...

    def lap(self, run: Run, before: Before, steps: int) -> list[float]:
        """Seconds of each of `steps` steps in a row, after one that is not measured."""

    def profile(self, run: Run, before: Before, tally: Tally) -> Ran: ...

    def peak(self, run: Run) -> int | None:
        """Peak memory in bytes while it runs; None where nobody counts it."""

    def free(self) -> int: ...

    def alive(self) -> bool:
        """Whether it still computes: after an illegal address nothing does, in this process."""

    def tidy(self) -> None:
        """Give back what a cell has left."""


class Host:
    """Without a card."""

    def captured(self, step: Run, before: Before) -> Run:
        for _ in range(WARM):
            before()
            step()
        return step

    def lap(self, run: Run, before: Before, steps: int) -> list[float]:
        found = []
        for _ in range(steps + 1):
            before()
            began = time.perf_counter()
            run()
            found.append(time.perf_counter() - began)
        return found[1:]

    def profile(self, run: Run, before: Before, tally: Tally) -> Ran:
        tally.clear()
        for _ in range(PROFILED):
            before()
            run()
        calls = tuple((name, n // PROFILED) for name, n in tally.calls.most_common())
        return Ran(None, calls, tuple((name, tally.seconds[name] / PROFILED) for name, _ in calls))

    def peak(self, run: Run) -> int | None:
        return None

    def free(self) -> int:
        """What the kernel calls available, or the physical memory where it does not say."""
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines() if Path("/proc/meminfo").is_file() else []
        said = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
        return int(said) * 1024 if said is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def alive(self) -> bool:
        return True

    def tidy(self) -> None:
        gc.collect()


class Card:
    """A CUDA device, through `cuda`, which is torch.cuda; `profiler` is torch.profiler."""

    def __init__(self, cuda: Any, profiler: Any) -> None:
        self.cuda, self.profiler = cuda, profiler
        self._side: Any = None  # one stream for all captures: libraries keep a workspace for each stream

    def captured(self, step: Run, before: Before) -> Run:
        """Warm on a side stream, then, on the same one, one step in a graph with a memory pool of its own. Its logits lie where the last
        replay left them. What waits for the card raises in the last warm step, where that does no harm."""
        side = self._side = self._side or self.cuda.Stream()
        side.wait_stream(self.cuda.current_stream())
        with self.cuda.stream(side):
            for _ in range(WARM - 1):
                before()
                step()
            before()
            with self._no_waiting():
                step()
        self.cuda.current_stream().wait_stream(side)
        before()
        self.cuda.synchronize()
        graph, logits = self._graph(step, side)
        self.cuda.synchronize()

        def run() -> Any:
            graph.replay()
            return logits

        return run

    @contextmanager
    def _no_waiting(self) -> Iterator[None]:
        self.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            self.cuda.set_sync_debug_mode("default")

    def _graph(self, step: Run, side: Any) -> tuple[Any, Any]:
        """The graph and its logits. What the step raised comes out as it was: a capture that it broke would raise another error over it."""
        graph, pool, main = self.cuda.CUDAGraph(), self.cuda.graph_pool_handle(), self.cuda.current_stream()
        raised: list[Exception] = []
        try:
            with no_collection(), self.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                try:
                    logits = step()
                except Exception as error:  # a kernel may raise anything
                    raised.append(error)
                    raise
        except Exception as error:  # noqa: BLE001  a kernel may raise anything
            self._mend(pool, main)
            raise (raised or [error])[0] from None
        return graph, logits

    def _mend(self, pool: Any, main: Any) -> None:
        """A broken capture leaves its stream current and the allocator in its pool, where no other capture could begin. torch 2.11 has no
        public way out. The pool is released only when this ended it: otherwise the graph does that, and twice would be once too often."""
        self.cuda.set_stream(main)
        end, release = (getattr(torch._C, name, None) for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"))
        if end is None or release is None:
            return
        try:
            end(self.cuda.current_device(), pool)
        except RuntimeError:  # the capture had ended by itself
            return
        release(self.cuda.current_device(), pool)

    def lap(self, run: Run, before: Before, steps: int) -> list[float]:
        before()
        run()
        pairs = [tuple(self.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(steps)]
        for start, end in pairs:
            before()
            start.record()
            run()
            end.record()
        self.cuda.synchronize()
        return [start.elapsed_time(end) / 1e3 for start, end in pairs]

    def profile(self, run: Run, before: Before, tally: Tally) -> Ran:
        """One step, through CUPTI, whose first session may come too late: then once more. MachineError when it sees nothing."""
        before()
        run()
        try:
            return self._traced(run, before)
        except MachineError:
            return self._traced(run, before)

    def _traced(self, run: Run, before: Before) -> Ran:
        """What sets the place back is launched before it and not seen."""
        before()
        self.cuda.synchronize()
        with self.profiler.profile(activities=[self.profiler.ProfilerActivity.CPU, self.profiler.ProfilerActivity.CUDA]) as seen:
            run()
            self.cuda.synchronize()
        with tempfile.TemporaryDirectory(prefix="keepfast-trace-") as folder:
            path = Path(folder) / "trace.json"
            seen.export_chrome_trace(str(path))
            return read(path, 1)

    def peak(self, run: Run) -> int | None:
        self.cuda.synchronize()
        self.cuda.reset_peak_memory_stats()
        run()
        self.cuda.synchronize()
        return int(self.cuda.max_memory_allocated())

    def free(self) -> int:
        return int(self.cuda.mem_get_info()[0])

    def alive(self) -> bool:
        try:
            self.cuda.synchronize()
        except RuntimeError:
            return False
        return True

    def tidy(self) -> None:
        gc.collect()
        self.cuda.synchronize()
        self.cuda.empty_cache()


@contextmanager
def no_collection() -> Iterator[None]:
    """A graph or an event that the collector drops inside a capture would end it."""
    gc.collect()
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def backend(device: str) -> Backend:
    return Card(torch.cuda, torch.profiler) if device == "cuda" else Host()
