"""A device that measures nothing: a fingerprint and ceilings as given, and a bench whose clock answers what it is told."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from keepfast.model import Machine

CEILINGS = (("copy_1MB_GBps", 100.0), ("read_1MB_GBps", 100.0), ("write_1MB_GBps", 100.0), ("float32_GFLOPs", 100.0))


def machine(ceilings: tuple[tuple[str, float], ...] = CEILINGS, *, name: str = "fake", cores: int = 2) -> Machine:
    """A machine with these measured ceilings; machines of different names do not compare."""
    return Machine(cpu=name, cores=cores, kernel="0", compiler="fake gcc", walls="walls", ceilings=ceilings, hash=f"fake-{name}")


class FakeLibrary(Struct, frozen=True):
    """Answers as judge/contents.c does: the time in ns of a pass over so many bytes, and a rate in GFLOP/s."""

    bandwidth_ns: Callable[[int], float] = lambda size: size / 100.0
    gflops: float = 100.0

    def kf_bandwidth(self, buffer: object, size: int, what: int, repeats: int) -> int:
        return max(1, round(self.bandwidth_ns(size)))

    def kf_gflops32(self, steps: int, repeats: int) -> float:
        return self.gflops


class FakeDevice(Struct, frozen=True):
    """A bench for `device.cpu.ceilings` and a sentinel that takes as long as it is told."""

    lib: FakeLibrary = FakeLibrary()
    sentinel: float = 1000.0

    def sentinel_ns(self) -> float:
        return self.sentinel
