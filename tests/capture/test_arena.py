"""The arena's bookkeeping, without a GPU: against a model, by fuzz."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from keepfast import native
from keepfast.capture.arena import Arena
from keepfast.capture.refusals import Refused
from keepfast.gpu.plan import Segment
from tests.capture.kit import BASES, MIB, SOURCE, opened


class Model:
    """What the arena must be like, said slowly."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.live: dict[int, tuple[int, bool]] = {}  # address -> size, born since the mark
        self.freed: dict[int, int] = {}  # until the next epoch
        self.held: dict[int, int] = {}  # until the next mark
        self.touched: set[tuple[int, int]] = set()

    def add(self, address: int, size: int) -> None:
        taken = [(a, s) for a, (s, _) in self.live.items()] + list(self.freed.items()) + list(self.held.items())
        assert all(address + size <= a or a + s <= address for a, s in taken), "memory that is in use was given away"
        self.live[address] = (size, True)
        self.touched.add((address, size))

    def free(self, address: int) -> None:
        size, born = self.live.pop(address)
        (self.freed if born else self.held)[address] = size

    def mark(self) -> None:
        self.freed.clear()
        self.held.clear()
        self.live = {a: (s, False) for a, (s, _) in self.live.items()}
        self.touched = {(a, s) for a, (s, _) in self.live.items()}


def up(n: int, step: int = 512) -> int:
    return -(-max(n, 1) // step) * step


def covered(parts: set[tuple[int, int]]) -> tuple[Segment, ...]:
    """The union, coalesced."""
    out: list[Segment] = []
    for address, size in sorted(parts):
        if out and address <= out[-1].end:
            out[-1] = Segment(out[-1].address, max(out[-1].end, address + size) - out[-1].address)
        else:
            out.append(Segment(address, size))
    return tuple(out)


@pytest.mark.parametrize("seed", range(6))
def test_it_behaves_as_the_model(arena: Arena, seed: int) -> None:
    dice, model = random.Random(seed), Model(arena.base)
    sizes = (0, 1, 511, 512, 513, 4096, 70_001, MIB, 3 * MIB + 7)
    for _ in range(1500):
        action = dice.random()
        if action < 0.5 or not model.live:
            size = dice.choice(sizes)
            address = arena.alloc(size)
            assert address % 512 == 0
            assert arena.holds(address)
            model.add(address, up(size))
        elif action < 0.9:
            address = dice.choice(list(model.live))
            arena.free(address)
            model.free(address)
        elif action < 0.96:
            arena.epoch()
            model.freed.clear()
        elif action < 0.98:
            arena.mark()
            model.mark()
        else:
            address = arena.block(dice.choice(sizes))
            assert address % (2 * MIB) == 0
            model.add(address, next(b.size for b in arena.live() if b.address == address))
        if dice.random() < 0.1:
            assert {b.address: (b.size, b.born) for b in arena.live()} == model.live
            assert arena.touched() == covered(model.touched)
    assert [b.address for b in arena.live()] == sorted(model.live)
    assert arena.short() == ""


def test_first_fit_over_what_was_freed_and_joined(arena: Arena) -> None:
    a, b, c, d = (arena.alloc(1024) for _ in range(4))
    assert (b - a, c - b, d - c) == (1024, 1024, 1024)
    arena.free(b)
    assert arena.alloc(1024) > d, "freed during a call: not in this call"
    arena.epoch()
    assert arena.alloc(1025) > d, "too small a gap"
    arena.free(c)
    arena.epoch()
    assert arena.alloc(2048) == b, "two neighbours are one gap"


def test_blocks_are_whole_pages(arena: Arena) -> None:
    arena.alloc(700)
    first = arena.block(3 * MIB)
    second = arena.block(2 * MIB)
    assert first % (2 * MIB) == 0
    assert second == first + 4 * MIB
    assert [b.size for b in arena.live()] == [1024, 4 * MIB, 2 * MIB]
    assert arena.alloc(MIB) < first, "what is left before a block is used"


def test_what_lived_at_the_mark_is_not_given_away(arena: Arena) -> None:
    old, later = arena.alloc(4096), arena.alloc(512)
    arena.mark()
    arena.free(old)
    arena.epoch()
    new = arena.alloc(4096)
    assert new > later
    assert [(b.address, b.born) for b in arena.live()] == [(later, False), (new, True)]
    assert arena.touched() == (Segment(old, 4096 + 512 + 4096),), "neighbours are one"
    arena.mark()
    assert arena.alloc(4096) == old
    assert arena.touched() == (Segment(old, 4096 + 512 + 4096),)


def test_the_cap_is_hard(fresh: Arena) -> None:
    opened(fresh, max_bytes=5 * MIB)
    assert fresh.alloc(3 * MIB)
    with pytest.raises(Refused, match=r"memory: 2,097,152 bytes were asked for; 4,194,304 of the 5,242,880 bytes") as refused:
        fresh.alloc(2 * MIB)
    assert refused.value.error == "memory"
    assert fresh.mapped == 4 * MIB
    assert fresh.alloc(MIB), "smaller ones still fit"
    assert fresh._lib.arena_alloc(64 * MIB, 0, None) is None
    assert fresh.short().startswith("67,108,864 bytes were asked for")
    assert fresh.short() == "", "said once"


def test_numbers_that_are_too_large_are_refused(arena: Arena) -> None:
    for size in (-1, 2**62, 2**63 - 1, arena.size + 1):
        assert arena._lib.arena_alloc(size, 0, None) is None
        assert arena.short()
    assert arena._lib.arena_block(2**64 - 1) == 0
    assert not arena.reserve(2**63)


def test_a_card_that_is_full_is_noticed(fresh: Arena) -> None:
    fresh._lib.arena_fake_limit(ctypes.c_uint64(6 * MIB))
    opened(fresh)
    assert fresh.alloc(5 * MIB), "not a whole chunk, but what is needed"
    assert fresh.mapped == 6 * MIB
    assert fresh._lib.arena_alloc(2 * MIB, 0, None) is None
    assert fresh.short()


def test_memory_can_be_mapped_ahead(arena: Arena) -> None:
    assert arena.reserve(100 * MIB)
    before = arena.mapped
    assert before >= 100 * MIB
    assert arena.block(90 * MIB)
    assert arena.mapped == before
    assert not arena.reserve(arena.max_bytes)
    assert arena.short() == "", "asking ahead is no request"


def test_memory_that_was_given_can_be_written(arena: Arena) -> None:
    for size in (1, 40 * MIB, 3 * MIB):
        address = arena.alloc(size)
        ctypes.memset(address, 7, size)
        assert ctypes.string_at(address + size - 1, 1) == b"\7"


def test_it_opens_once_where_the_addresses_are_free(fresh: Arena, fake_library: Path, tmp_path: Path) -> None:
    assert fresh._lib.arena_alloc(512, 0, None) is None, "not open"
    assert fresh.open(0x20_0000_0200, 64 * MIB, MIB) == "not an arena's numbers"
    opened(fresh)
    assert fresh.open(next(BASES), 64 * MIB, MIB) == "not an arena's numbers"
    other = Arena(shutil.copy(fake_library, tmp_path / "other.so"))
    assert other.open(fresh.base, 64 * MIB, MIB) == "arena"
    assert other.open(next(BASES), 64 * MIB, 64 * MIB) == ""


def test_strange_pointers_are_not_freed(arena: Arena) -> None:
    kept = arena.alloc(4096)
    for address in (0, kept + 512, kept - 512, 12345):
        arena.free(address)
    arena.free(kept)
    arena.free(kept)
    arena.epoch()
    assert arena.live() == ()
    assert arena.alloc(4096) == kept


def test_threads_may_share_it(arena: Arena) -> None:
    found: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        for i in range(300):
            mine.append(arena.alloc(600))
            if i % 3 == 0:
                arena.free(mine.pop(0))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = sorted(address for mine in found for address in mine)
    assert [b.address for b in arena.live()] == kept
    assert len(set(kept)) == len(kept) == 800


def test_it_builds_where_there_is_no_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arena = Arena(str(native.library("arena")))
    assert arena._lib.arena_alloc(512, 0, None) is None
    if not any(Path(folder, "libcuda.so.1").exists() for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64")):
        assert arena.open(0x20_0000_0000, 64 * MIB, MIB) == "there is no libcuda.so.1"


def test_records_are_those_of_the_driver() -> None:
    """arena.c declares them itself."""
    gcc = shutil.which("gcc")
    if gcc is None or not Path("/usr/local/cuda/include/cuda.h").is_file():
        pytest.skip("no CUDA headers")
    pairs = (("properties", "CUmemAllocationProp"), ("access", "CUmemAccessDesc"), ("location", "CUmemLocation"))
    fields = (("properties", "location", "CUmemAllocationProp", "location"), ("properties", "flags", "CUmemAllocationProp", "allocFlags"),
              ("access", "flags", "CUmemAccessDesc", "flags"), ("location", "id", "CUmemLocation", "id"))  # fmt: skip
    numbers = (("PINNED", "CU_MEM_ALLOCATION_TYPE_PINNED"), ("DEVICE", "CU_MEM_LOCATION_TYPE_DEVICE"),
               ("READ_WRITE", "CU_MEM_ACCESS_FLAGS_PROT_READWRITE"), ("RELAXED", "CU_STREAM_CAPTURE_MODE_RELAXED"))  # fmt: skip
    checks = [f'_Static_assert(sizeof(struct {ours}) == sizeof({theirs}), "{ours}");' for ours, theirs in pairs]
    checks += [f'_Static_assert(offsetof(struct {a}, {b}) == offsetof({c}, {d}), "{a} {b}");' for a, b, c, d in fields]
    checks += [f'_Static_assert((int){ours} == (int){theirs}, "{ours}");' for ours, theirs in numbers]
    source = "\n".join((f'#include "{SOURCE}"', "#include <stddef.h>", "#include <cuda.h>", *checks, ""))
    subprocess.run([gcc, "-fsyntax-only", "-I/usr/local/cuda/include", "-xc", "-"], input=source.encode(), check=True)
