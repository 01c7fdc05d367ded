"""New contents, poison and comparison for many sets at memory speed: the judge's hand on `contents.c`.

Works on the judge's own mappings, only while every runner is stopped. Must not know clocks or verdicts.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from keepfast import native, wire
from keepfast.dtypes import by_name
from keepfast.judge.compare import OFF_BY_ONE_SHARE, TINY_SLICE, Budget, sizes, slices
from keepfast.judge.sets import Draw, Layout, Slot, view
from keepfast.model import Task

if TYPE_CHECKING:
    import numpy as np

QUIET_NAN = 0x7FF80000  # two of these words are a NaN in float64, one is in float32, and its upper half in float16


class Library:
    """The compiled helper with typed entry points."""

    def __init__(self) -> None:
        self.lib: ctypes.CDLL = ctypes.CDLL(str(native.library("contents")))
        size, u64, pointer = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
        self.lib.kf_mix.argtypes = [pointer, pointer, pointer, size, size, u64]
        self.lib.kf_fill.argtypes = [pointer, size, ctypes.c_uint32]
        self.lib.kf_intact.argtypes = [pointer, size, ctypes.c_uint32]
        self.lib.kf_intact.restype = size
        for name in ("kf_compare32", "kf_compare64"):
            entry = getattr(self.lib, name)
            entry.argtypes, entry.restype = [pointer, pointer, size, size, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(size)], size
        self.lib.kf_sentinel.argtypes, self.lib.kf_sentinel.restype = [u64], u64
        self.lib.kf_bandwidth.argtypes, self.lib.kf_bandwidth.restype = [pointer, size, ctypes.c_int, ctypes.c_int], u64
        self.lib.kf_gflops32.argtypes, self.lib.kf_gflops32.restype = [u64, ctypes.c_int], ctypes.c_double

    def sentinel_ns(self) -> float:
        return float(min(self.lib.kf_sentinel(200_000) for _ in range(3)))


def fresh_poison(rng: Random) -> int:
    """A 32-bit word for outputs and canaries: a NaN with a payload drawn anew each time."""
    return QUIET_NAN | rng.getrandbits(19)


class Buffer:
    """A memfd the judge has mapped: `fd` for the runner, `array` (uint8) for us."""

    def __init__(self, name: str, size: int, *, sealed: bool) -> None:
        import numpy as np

        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = wire.memfd(name, self.size)
        self.memory = mmap.mmap(self.fd, self.size)
        self.array: np.ndarray = np.frombuffer(self.memory, np.uint8)
        if sealed:
            wire.seal_writes(self.fd)

    @property
    def address(self) -> int:
        return int(self.array.ctypes.data)

    def close(self) -> None:
        del self.array
        self.memory.close()
        os.close(self.fd)


class Found(Struct, frozen=True):
    """A set in which the two arms differ, or whose canaries were touched."""

    index: int
    result: str
    canary: bool = False


class Recipe(Struct, frozen=True):
    """How one set's contents were made: two draws of the bank and a key."""

    own: int
    other: int
    key: int


class Sets:
    """`count` sets of one case: inputs that both arms read, outputs of each arm."""

    def __init__(self, library: Library, task: Task, bank: tuple[Draw, ...], count: int) -> None:
        self.library, self.task, self.bank, self.count = library, task, bank, count
        self.layout: Layout = bank[0].layout
        self.inputs = Buffer("inputs", count * self.layout.in_bytes, sealed=True)
        self.outputs = tuple(Buffer(f"outputs-{arm}", count * self.layout.out_bytes, sealed=False) for arm in range(2))
        self.poison = 0
        self.recipes = [Recipe(0, 0, 0)] * count
        given = {a.name for a in task.signature.args}
        self.given = tuple(s for s in self.layout.slots if s.name in given)

    def close(self) -> None:
        for buffer in (self.inputs, *self.outputs):
            buffer.close()

    def refresh(self, rng: Random) -> None:
        """Contents never seen before in every set, fresh poison in every output, the same for both arms."""
        self.poison = fresh_poison(rng)
        words = self.outputs[0].size // 4
        for buffer in self.outputs:
            self.library.lib.kf_fill(buffer.address, words, self.poison)
        for index in range(self.count):
            self._set(index, rng)

    def _set(self, index: int, rng: Random) -> None:
        own, away = index % len(self.bank), rng.randrange(max(1, len(self.bank) - 1))
        other = (own + 1 + away) % len(self.bank)  # never its own: a draw as it was checked would be known contents
        self.recipes[index] = Recipe(own, other, rng.getrandbits(64))
        i, o = index * self.layout.in_bytes, index * self.layout.out_bytes
        self._write("in", self.inputs.array[i : i + self.layout.in_bytes], self.recipes[index])
        for buffer in self.outputs:
            self._write("out", buffer.array[o : o + self.layout.out_bytes], self.recipes[index])

    def _write(self, region: str, image: np.ndarray, recipe: Recipe) -> None:
        """Contents by recipe: floats mixed per element from two draws, everything else as one draw has it."""
        own, other = (getattr(self.bank[i], f"{region}_image") for i in (recipe.own, recipe.other))
        for slot in self.given:
            if slot.region != region:
                continue
            kind = by_name(slot.dtype)
            if not (kind.is_float and kind.bits >= 8 and self.task.argument(slot.name).refresh == "element"):
                image[slot.base : slot.base + slot.span] = own[slot.base : slot.base + slot.span]
                continue
            places = [array.ctypes.data + slot.base for array in (image, own, other)]
            self.library.lib.kf_mix(*places, slot.span // (kind.bits // 8), kind.bits // 8, recipe.key ^ slot.base)

    def differing(self, budgets: dict[str, Budget]) -> list[Found]:
        """Compare every output of every set between the arms (subject 0, opponent 1); canaries of the subject."""
        found = [Found(i, name) for name, budget in budgets.items() for i in self._unequal(self.layout.slot(name), budget)]
        return found + [Found(i, "", canary=True) for i in range(self.count) if not self._canaries(i)]

    def _unequal(self, slot: Slot, budget: Budget) -> list[int]:
        entry = {"float32": self.library.lib.kf_compare32, "float64": self.library.lib.kf_compare64}.get(slot.dtype)
        if entry is None or not slot.contiguous or slot.span == 0:
            return [i for i in range(self.count) if not self._close(slot, i, budget)]
        length = slot.shape[-1] if slot.shape else 1
        count = slot.span // (by_name(slot.dtype).bits // 8) // length
        bounds, first = (ctypes.c_double * 3)(2 * budget.rms, 2 * budget.worst, TINY_SLICE), ctypes.c_size_t()
        step = self.layout.out_bytes
        places = [tuple(b.address + i * step + slot.base for b in self.outputs) for i in range(self.count)]
        return [i for i, (a, b) in enumerate(places) if entry(a, b, count, length, bounds, ctypes.byref(first))]

    def _close(self, slot: Slot, index: int, budget: Budget) -> bool:
        import numpy as np

        a, b = (view(buffer.array, slot, index * self.layout.out_bytes) for buffer in self.outputs)
        if np.array_equal(a, b):
            return True
        if not by_name(slot.dtype).is_float:
            off = np.abs(a.astype(np.int64) - b.astype(np.int64))
            return bool(a.dtype.itemsize == 1 and a.dtype.kind in "iu" and off.max() <= 2 and (off > 0).mean() <= 2 * OFF_BY_ONE_SHARE)
        x, y = slices(a).astype(np.float64), slices(b).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            size, off = sizes(y), np.abs(x - y)
        return bool(np.all((np.sqrt(np.mean(off**2, axis=1)) <= 2 * budget.rms * size) & (off.max(axis=1) <= 2 * budget.worst * size)))

    def _canaries(self, index: int) -> bool:
        return canaries(self.library, self.outputs[0], index * self.layout.out_bytes, self.layout, self.poison) is None

    def drawn(self, index: int) -> tuple[Draw, np.ndarray]:
        """Private copies of one set: what was given (as a Draw without results) and what the subject wrote."""
        import numpy as np

        recipe, i, o = self.recipes[index], self.layout.in_bytes, self.layout.out_bytes
        given, first = self.inputs.array[index * i : (index + 1) * i].copy(), np.zeros(o, np.uint8)
        self._write("out", first, recipe)
        own = self.bank[recipe.own]
        return Draw(own.case, self.layout, own.words, given, first), self.outputs[0].array[index * o : (index + 1) * o].copy()


def canaries(library: Library, buffer: Buffer, at: int, layout: Layout, poison: int) -> str | None:
    """Name of the tensor whose surroundings were written, or None. Only whole words between slots are looked at."""
    end = 0
    for slot in (*layout.outs(), None):
        stop = (slot.base if slot else layout.out_bytes) & ~3
        start = -(-end // 4) * 4
        if stop > start and library.lib.kf_intact(buffer.address + at + start, (stop - start) // 4, poison) != (stop - start) // 4:
            return slot.name if slot else (layout.outs()[-1].name if layout.outs() else "outputs")
        end = slot.base + slot.span if slot else end
    return None
