"""One arm of a case: its memory, its executables, and our kernels on its sets and results, with arguments laid out once.

Everything but `chain`, `single` and `watched` only queues work. Must not know clocks or the other arm.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from keepfast.gpu.driver import CudaError, Device, ok
from keepfast.gpu.layout import Layout
from keepfast.gpu.messages import Bank
from keepfast.gpu.plan import Plan
from keepfast.launcher import tables
from keepfast.launcher.faults import refused
from keepfast.launcher.kernels import PIECE, Grid, Kernels
from keepfast.launcher.memory import Mapped
from keepfast.launcher.rebuild import Rebuilt

_pointer, _u32, _u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64


class Contents(Struct, frozen=True):
    """What the sets hold in one launch: a mixture named by a nonce, or the draws as they are. `pattern`: of the poison around it."""

    nonce: int
    verbatim: bool
    pattern: int


class Tables(Struct, frozen=True):
    """Addresses of what the kernels read, in private memory, and how much there is of it."""

    bank: int
    draws: Bank
    parts: int
    weights: int  # the same parts, all poison but the weights
    part_rows: tuple[tables.Part, ...]
    results: int
    audited: int
    result_rows: tuple[tables.Result, ...]
    kept_bytes: int  # of the results of one call


class Own(Struct, frozen=True):
    """The same of one arm: where its results lie, the blocks that are restored and what they are restored to."""

    addresses: int
    blocks: int
    block_rows: tuple[tables.Block, ...]
    store: int


class Arm:
    """`index` 0 or 1. Its images are loaded, nothing is built."""

    def __init__(self, index: int, device: Device, plan: Plan, mapped: Mapped) -> None:
        self.index, self.device, self.plan, self.mapped = index, device, plan, mapped
        self.rebuilt = Rebuilt(device, plan, index)
        self.chains: dict[int, tuple[Any, ...]] = {}  # by number of calls
        self.singles: dict[int, Any] = {}  # by call
        self.prepared: tuple[Any, ...] = ()  # one executable, where the plan has something to prepare
        self.passing: list[Any] = []  # executables that are used once

    def close(self) -> None:
        for made in (*self.chains.values(), tuple(self.singles.values()), self.prepared, tuple(self.passing)):
            for executable in made:
                self.rebuilt.destroy(executable)
        self.chains.clear()
        self.singles.clear()
        self.passing.clear()
        self.prepared = ()
        self.rebuilt.close()

    def lay_out(self, kernels: Kernels, layout: Layout, shared: Tables, own: Own) -> None:
        """Lay out the arguments of every kernel of ours."""
        self.hands = Hands(kernels, (self.plan, layout), shared, own)

    # ---------------------------------------------------------------------------------------- launches

    def chain(self, calls: int, order: Sequence[int]) -> None:
        """One more executable of `calls` calls, in this order."""
        self.chains[calls] = (*self.chains.get(calls, ()), self.rebuilt.chain(order))

    def single(self, call: int) -> Any:
        if call not in self.singles:
            self.singles[call] = self.rebuilt.chain([call])
        return self.singles[call]

    @contextmanager
    def once(self, executable: Any) -> Iterator[Any]:
        """An executable that is gone afterwards; with the arm, when something failed, for then the context may be lost."""
        self.passing.append(executable)
        yield executable
        self.passing.remove(executable)
        self.rebuilt.destroy(executable)

    def build_prepared(self, order: Sequence[int]) -> None:
        """The executable that prepares all calls, in this order, unless it is there. Memory is open while it is made."""
        if self.plan.prepare and not self.prepared:
            self.prepared = (self.rebuilt.prepare(order),)

    def prepare(self, contents: Contents) -> None:
        """Queue: the memory of this arm holds nothing but weights, blocks and poison, and the plan prepares what it wants from that, for
        all of its calls. So nothing that it makes can come from an input, or from the launch before."""
        if not self.prepared:
            return
        self.mapped.wipe(contents.pattern)
        self.hands.give_weights(contents)
        for executable in self.prepared:
            self.launch(executable)

    def launch(self, executable: Any) -> None:
        try:
            ok(self.device.cu.cuGraphLaunch(executable, self.device.stream), "cuGraphLaunch")
        except CudaError as error:
            raise refused("launch", "its graph was not launched", error, self.index) from None


class Hands:
    """Our kernels on one arm. Calls are counted from 0; each method works on the first `calls` of them, or on one."""

    def __init__(self, kernels: Kernels, what: tuple[Plan, Layout], shared: Tables, own: Own) -> None:
        self.plan, self.layout = what
        self.kernels, self.shared, self.own = kernels, shared, own
        bank = shared.draws
        self.source = tables.Source(shared.bank, shared.parts, bank.stride, self.layout.set_bytes, 0, bank.draws, 0, 0, 0)
        self.target, self.first, self.pattern, self.want, self.which = _pointer(), _u32(), _u32(), _u32(), _u32()
        self.counts, self.odd, self.kept, self.stride = _pointer(), _pointer(), _pointer(), _u64(shared.kept_bytes)
        self.results = _pointer(shared.results)
        self._on_sets()
        self._on_results()
        self._on_blocks()

    def _on_sets(self) -> None:
        """Without tensors there is nothing to give and nothing to verify."""
        rows = self.shared.part_rows
        self.no_sets = not rows
        grid = self.kernels.wide(max((p.bytes for p in rows), default=0), max(1, len(rows)), self.plan.calls)
        sets = _pointer(self.plan.sets)
        self._give = self.kernels.launch("give", [self.target, self.source], grid)
        self._verify = self.kernels.launch("verify", [sets, self.source, self.which, self.counts], grid)

    def _on_results(self) -> None:
        rows = self.shared.result_rows
        self.no_results = not rows
        grid = self.kernels.wide(max((r.bytes for r in rows), default=0), max(1, len(rows)), self.plan.calls)
        mine = [_pointer(self.own.addresses), self.results]
        kept = [*mine, self.kept, self.stride]
        launch = self.kernels.launch
        self._poison = launch("poison", [*mine, self.first, self.pattern], grid)
        self._untouched = launch("untouched", [*mine, self.first, self.pattern, self.want, self.counts], grid)
        self._keep = launch("keep", [*mine, self.first, self.kept, self.stride], grid)
        self._differ = launch("differ", [*kept, self.counts], grid)
        self._rows = launch("rows", [*kept, self.counts, self.odd], self._tall(grid))

    def _tall(self, grid: Grid) -> Grid:
        """A block works on a row at a time: no more blocks than rows (taken for bytes long, which is too many and does no harm)."""
        rows = max((r.bytes // min(r.columns, PIECE) + 1 for r in self.shared.result_rows), default=1)
        return min(rows, 1 + 64 * self.kernels.device.processors // grid[2]), grid[1], grid[2]

    def _on_blocks(self) -> None:
        rows = self.own.block_rows
        arguments = [_pointer(self.own.blocks), _u32(len(rows)), _pointer(self.own.store)]
        grid = self.kernels.wide(max((b.bytes for b in rows), default=0), max(1, len(rows)), 1)
        self._restore = self.kernels.launch("restore", arguments, (min(8, grid[0]), grid[1], 1))

    # ---------------------------------------------------------------------------------------- before a launch

    def give_weights(self, contents: Contents) -> None:
        """Blocks as they were, the weights of every call, and poison in all other bytes of the sets."""
        if self.own.block_rows:
            self._restore.go()
        self._contents(contents)
        self._set(self.plan.sets, 0)
        self.source.parts = self.shared.weights
        if not self.no_sets:
            self._give.go(self.plan.calls)
        self.source.parts = self.shared.parts

    def give(self, contents: Contents, calls: int) -> None:
        """Blocks as they were, or as `prepare` left them; new contents in the sets, poison in scratch arguments, gaps and fresh results."""
        if self.own.block_rows and not self.plan.prepare:
            self._restore.go()
        self._contents(contents)
        self._set(self.plan.sets, 0)
        if not self.no_sets:
            self._give.go(calls)
        if not self.no_results:
            self._poison.go(calls)

    def _contents(self, contents: Contents) -> None:
        self.source.nonce, self.source.verbatim = contents.nonce & (1 << 64) - 1, int(contents.verbatim)
        self.source.pattern = self.pattern.value = contents.pattern

    def _set(self, target: int, first: int) -> None:
        self.target.value = target
        self.source.first = self.first.value = first

    # ---------------------------------------------------------------------------------------- after it

    def inspect(self, counts: int, layout: tables.Counts, calls: int) -> None:
        """Count changed arguments and gaps, and what results were not written. `counts`: where this launch's counters start."""
        self._set(self.plan.sets, 0)
        self._count_sets(counts + layout.offset("inputs"), tables.GAP | tables.INPUT, calls)
        self._count_results(counts + layout.offset("unwritten"), 1, calls)

    def early(self, first: int, calls: int, counts: int, layout: tables.Counts) -> None:
        """Count what of the results of so many calls was touched, which should not have been: they did not run, or not yet."""
        self._set(self.plan.sets, first)
        self._count_sets(counts + layout.offset("early"), tables.WRITTEN, calls)
        self._count_results(counts + layout.offset("early"), 0, calls)

    def _count_sets(self, counts: int, which: int, calls: int) -> None:
        if not self.no_sets:
            self.which.value, self.counts.value = which, counts
            self._verify.go(calls)

    def _count_results(self, counts: int, want: int, calls: int) -> None:
        if not self.no_results:
            self.want.value, self.counts.value = want, counts
            self._untouched.go(calls)

    def keep(self, kept: int, calls: int) -> None:
        if self.no_results:
            return
        self.first.value, self.kept.value = 0, kept
        self._keep.go(calls)

    def compare(self, kept: int, counts: int, layout: tables.Counts, calls: int) -> None:
        """Count granules that differ from what was kept, and calls that differ by more than the tolerance."""
        if self.no_results:
            return
        self.kept.value, self.counts.value, self.odd.value = kept, counts + layout.offset("differ"), counts + layout.offset("odd")
        self._differ.go(calls)
        self._rows.go(calls)

    def audit(self, contents: Contents, call: int, address: int) -> None:
        """Put a call into the audit memory: its set as it was given, and its results."""
        self._contents(contents)
        self._set(address, call)
        if not self.no_sets:
            self._give.go(1)
        if not self.no_results:
            self.kept.value, self.results.value = address, self.shared.audited
            self._keep.go(1)
            self.results.value = self.shared.results
