"""The CPU as a device: its fingerprint and its measured ceilings. Changes no setting. Must not know tasks or verdicts."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from typing import Any, Protocol

from keepfast.model import Machine

FOOTPRINTS_MB = (1, 4, 16, 32)
KINDS = ("copy", "read", "write")


class Bench(Protocol):
    """The compiled helper that measures (judge/contents.c)."""

    @property
    def lib(self) -> Any: ...


def fingerprint(walls: str) -> Machine:
    """Facts that must agree before two times are compared; `hash` is over them."""
    facts = (_cpu_name(), len(os.sched_getaffinity(0)), platform.release(), compiler())
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return Machine(cpu=facts[0], cores=facts[1], kernel=facts[2], compiler=facts[3], walls=walls, hash=digest)


def last_cores(count: int) -> tuple[int, ...]:
    """The cores that runners get: the last ones this process may use."""
    return tuple(sorted(os.sched_getaffinity(0))[-count:])


def compiler() -> str:
    """First line of `gcc --version`, or "none"."""
    if shutil.which("gcc") is None:
        return "none"
    done = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.stdout else "none"


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            lines = [line.split(":", 1)[1].strip() for line in info if line.startswith(("model name", "Hardware", "CPU part"))]
    except OSError:
        lines = []
    return lines[0] if lines else platform.machine()


def ceilings(bench: Bench, threads: int) -> tuple[tuple[str, float], ...]:
    """Measured limits: GB/s of copy, read and write per footprint, and float32 GFLOP/s, of one thread times `threads`.

    Times are the best of 20 (bandwidth) or 5 (arithmetic). Multiplying by threads overstates shared bandwidth, which
    makes the physics check milder, never unjust.
    """
    import ctypes

    import numpy as np

    lib = bench.lib
    buffer = np.ones(max(FOOTPRINTS_MB) << 20, np.uint8)
    found: list[tuple[str, float]] = []
    for size in FOOTPRINTS_MB:
        for what, kind in enumerate(KINDS):
            ns = lib.kf_bandwidth(buffer.ctypes.data_as(ctypes.c_void_p), size << 20, what, 20)
            found.append((f"{kind}_{size}MB_GBps", threads * (size << 20) / ns))
    found.append(("float32_GFLOPs", threads * lib.kf_gflops32(100_000, 5)))
    return tuple(found)
