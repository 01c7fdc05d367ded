"""How much memory a case needs, counted before any is taken, and how many launches are kept for comparison.

Must not know the driver.
"""

from __future__ import annotations

from msgspec import Struct

from keepfast.launcher.faults import Failed

LAUNCHES = 4  # queued in a slot where memory allows
SPARE = 256 << 20  # left to the driver: executable graphs, local memory of kernels
NEXT = "make the case or its number of calls smaller, or give the card free"


class Need(Struct, frozen=True):
    """Bytes of device memory. `results`: of all calls of one launch, and `launches` of them are kept, at least one."""

    case: str
    sets: int
    others: int  # everything else that the arms have
    results: int
    bank: int  # 0 when it is another process's memory
    audit: int
    fixed: int  # washing, tables, counters

    def total(self, launches: int) -> int:
        return self.sets + self.others + launches * self.results + self.bank + self.audit + self.fixed

    def launches(self, free: int, most: int) -> int:
        """How many launches a slot can have. Failed ("memory") when not even one fits."""
        for count in range(most, 0, -1):
            if self.total(count) + SPARE <= free:
                return count
        raise Failed("memory", self._refusal(free))

    def _refusal(self, free: int) -> str:
        parts = (
            ("sets", self.sets),
            ("other memory of the arms", self.others),
            ("results kept of one launch", self.results),
            ("bank", self.bank),
            ("audit", self.audit),
            ("own", self.fixed),
        )
        said = ", ".join(f"{name} {gib(size)}" for name, size in parts if size)
        return f"case {self.case} needs {gib(self.total(1) + SPARE)} ({said}); the card has {gib(free)} free: {NEXT}"


def gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 1 << 29 else f"{size / 2**20:.1f} MiB"
