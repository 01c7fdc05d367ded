"""Memory of a case: its arms on shared pages, what no plan has ever heard of, the bank, the audit memory.

Everything is given back by closing. Must not know graphs, contents or clocks.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any

import numpy as np

from keepfast import wire
from keepfast.gpu.driver import BLOCK, RESERVE, CudaError, Device, Moved, Range, exported, imported, physical, release
from keepfast.gpu.layout import up
from keepfast.gpu.messages import Bank
from keepfast.gpu.plan import Plan, Segment, inside
from keepfast.launcher import pages
from keepfast.launcher.faults import Failed, asked

LOW, HIGH = 1 << 42, 1 << 46  # where private memory is hidden: as far from plans as from what the driver takes by itself
TRIES = 8


class Footprint:
    """The pages of a plan: those of its sets, and all others in address order."""

    def __init__(self, plan: Plan, set_bytes: int, arena: Segment, arm: int) -> None:
        used = plan.calls * set_bytes
        self.sets = Segment(plan.sets, up(used, BLOCK))
        if plan.sets % BLOCK or (used and not inside(plan.segments, plan.sets, used)):
            raise Failed("not-a-plan", "its sets are not one block of whole pages", arm)
        self.others = pages.pages(plan.segments, self.sets)
        self.all = pages.rounded((*self.others, *((self.sets,) if used else ())), BLOCK)
        if any(run.address < arena.address or run.end > arena.end for run in self.all):
            raise Failed("not-a-plan", "its memory lies outside its arena", arm)

    @property
    def runs(self) -> tuple[tuple[Segment, ...], ...]:
        """What is shared with other arms' runs of the same index."""
        return ((self.sets,) if self.sets.size else ()), self.others


def arenas(bases: Sequence[int], size: int) -> tuple[Segment, ...]:
    """Failed ("machine") for arenas that overlap or do not start where addresses can be reserved."""
    found = tuple(Segment(base, up(size, RESERVE)) for base in bases)
    asked(1 <= len(found) <= 2, f"{len(found)} arms; one or two are judged")
    asked(all(p.address > 0 and p.address % RESERVE == 0 for p in found), f"an arena does not start at a multiple of {RESERVE >> 20} MiB")
    ordered = sorted(found, key=lambda p: p.address)
    asked(all(a.end <= b.address for a, b in itertools.pairwise(ordered)), "the arenas overlap")
    return found


class Shared:
    """Physical memory under all arms: as much as the largest of them needs, for sets and for everything else."""

    def __init__(self, device: Device, prints: Sequence[Footprint], stack: ExitStack) -> None:
        self.sizes = tuple(pages.pieces([p.runs[kind] for p in prints]) for kind in range(2))
        self.pieces: list[list[Any]] = [[], []]
        for kind, sizes in enumerate(self.sizes):
            for size in sizes:
                memory = physical(device, size)
                stack.callback(release, device, memory)
                self.pieces[kind].append(memory)

    @staticmethod
    def needed(prints: Sequence[Footprint]) -> tuple[int, int]:
        """Bytes: sets, everything else."""
        sets, others = (sum(pages.pieces([p.runs[kind] for p in prints])) for kind in range(2))
        return sets, others


class Mapped:
    """The pages of one arm at the addresses of its plan, on the shared memory. Closed until opened."""

    def __init__(self, device: Device, footprint: Footprint, shared: Shared, arm: int) -> None:
        self.device, self.runs = device, footprint.all
        self.ranges: list[Range] = []
        with ExitStack() as stack:
            stack.callback(self.close)
            for segment in pages.reservations(self.runs):
                self.ranges.append(_reserved(device, segment, arm))
            for kind, runs in enumerate(footprint.runs):
                for part, memory in zip(pages.spread(runs, shared.sizes[kind]), shared.pieces[kind], strict=False):
                    self._range(part).map(part.address, part.size, memory)
            stack.pop_all()

    def _range(self, part: Segment) -> Range:
        return next(r for r in self.ranges if r.base <= part.address and part.end <= r.base + r.size)

    def access(self, allowed: bool) -> None:
        for reserved in self.ranges:
            reserved.access(allowed)

    def wipe(self, word: int) -> None:
        """Queue: nothing of what was in any page of this arm is left."""
        for run in self.runs:
            self.device.fill(run.address, run.size, word)

    def close(self) -> None:
        while self.ranges:
            self.ranges.pop().close()


def _reserved(device: Device, segment: Segment, arm: int) -> Range:
    try:
        return Range(device, segment.address, segment.size)
    except CudaError as error:
        raise Failed("collision", f"the addresses of arm {arm} are in use here ({error}): start anew, with another arena", arm) from None


# --------------------------------------------------------------------------------------------- what no plan knows


class Private:
    """Named pieces of memory of our own, at addresses drawn anew, all zero."""

    def __init__(self, device: Device, sizes: Mapping[str, int], rng: Random, stack: ExitStack) -> None:
        self.at: dict[str, int] = {}
        size = self.bytes(sizes)
        reserved = hidden(device, size, rng)
        stack.callback(reserved.close)
        memory = physical(device, size)
        stack.callback(release, device, memory)
        reserved.map(reserved.base, size, memory)
        reserved.access(True)
        device.fill(reserved.base, size, 0)
        at = reserved.base
        for name, wanted in sizes.items():
            self.at[name] = at
            at += up(wanted)

    @staticmethod
    def bytes(sizes: Mapping[str, int]) -> int:
        return max(BLOCK, up(sum(up(size) for size in sizes.values()), BLOCK))


def hidden(device: Device, size: int, rng: Random) -> Range:
    """Reserved addresses that code on the device cannot guess: a wrong guess is a fault."""
    for _ in range(TRIES):
        try:
            return Range(device, rng.randrange(LOW // RESERVE, HIGH // RESERVE) * RESERVE, size)
        except Moved:
            continue
    return Range(device, 0, size)


class Audit:
    """Memory of which another process reads the calls that are put there: exported, or copied to `fd`, a memfd of the judge's."""

    def __init__(self, device: Device, size: int, fd: int | None, rng: Random, stack: ExitStack) -> None:
        self.device, self.used, self.fd = device, size, fd
        if fd is not None:
            wire.check(fd, self._host_bytes(fd))
        whole = up(size, BLOCK)
        reserved = hidden(device, whole, rng)
        stack.callback(reserved.close)
        self.memory = physical(device, whole, exportable=fd is None)
        stack.callback(release, device, self.memory)
        reserved.map(reserved.base, whole, self.memory)
        reserved.access(True)
        self.address = reserved.base

    @property
    def size(self) -> int:
        """Bytes that the other process maps: all of the allocation, or what was asked for in the judge's memfd."""
        return self.used if self.fd is not None else up(self.used, BLOCK)

    def _host_bytes(self, fd: int) -> int:
        size = os.fstat(fd).st_size
        asked(size >= self.used, f"an audit memory of {size} bytes; {self.used} are needed")
        return size

    def export(self) -> int:
        """A descriptor, which the caller closes."""
        return exported(self.device, self.memory)

    def flush(self) -> None:
        """Let the other process see what was put there. After the stream was waited for."""
        if self.fd is not None:
            download(self.device, self.address, self.fd, self.used)


def bank_of_gpu(device: Device, bank: Bank, fd: int, rng: Random, stack: ExitStack) -> int:
    """Address of another process's exported allocation."""
    asked(bank.size % BLOCK == 0, f"a bank of {bank.size} bytes, which is no whole allocation")
    memory = imported(device, fd)
    stack.callback(release, device, memory)
    reserved = hidden(device, bank.size, rng)
    stack.callback(reserved.close)
    reserved.map(reserved.base, bank.size, memory)
    reserved.access(True)
    return reserved.base


def upload(device: Device, fd: int, address: int, size: int) -> None:
    """Shared memory of the host to the device. WireError when it is not `size` bytes that cannot shrink."""
    wire.check(fd, size)
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as memory:
        data = np.frombuffer(memory, np.uint8)
        device.write_from(address, int(data.ctypes.data), size)
        del data


def download(device: Device, address: int, fd: int, size: int) -> None:
    """The device's memory to shared memory of the host."""
    with mmap.mmap(fd, os.fstat(fd).st_size) as memory:
        data = np.frombuffer(memory, np.uint8)
        device.read_to(address, int(data.ctypes.data), size)
        del data
