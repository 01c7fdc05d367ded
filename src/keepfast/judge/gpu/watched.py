"""Shares of GPU time, held against the clock: kernels that take their time only while they are watched do not get it.

Must not know how times were measured, or which share a rule asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from keepfast.gpu.messages import KernelFacts, Profiled
from keepfast.judge.gpu.provenance import OWN

TOLD = 0.05  # of the watched time: below it nothing is said


class Watched(Struct, frozen=True):
    """us of all nodes of a call: as they were watched, and what the unwatched chain leaves room for."""

    call_us: float = 0.0
    room_us: float = 0.0

    @property
    def missing(self) -> float:
        """The part of the watched time that was not there."""
        return max(0.0, 1.0 - self.room_us / self.call_us) if self.call_us > 0 else 0.0


def of(profiled: Profiled) -> Watched:
    return Watched(profiled.call_us, profiled.room_us)


def held(kernels: Sequence[KernelFacts], watched: Watched, origin: Callable[[str], str]) -> tuple[KernelFacts, ...]:
    """What was not there is taken off the candidate's own kernels, each in proportion: a library does not know that it is watched."""
    own = {k.name for k in kernels if origin(k.name) in OWN.values()}
    mine = sum(k.share for k in kernels if k.name in own)
    taken = min(watched.missing, mine)
    if taken <= 0 or taken >= 1:
        return tuple(kernels)
    left = 1.0 - taken / mine
    return tuple(replace(k, share=k.share * (left if k.name in own else 1.0) / (1.0 - taken)) for k in kernels)


def said(case: str, watched: Watched) -> str:
    """What there is to say of it, "" for nothing."""
    if watched.missing <= TOLD:
        return ""
    times = f"{watched.call_us:.1f} us a call while each is watched, and there is room for {watched.room_us:.1f} us"
    return f"case {case}: its kernels take {times} in the chain that is timed"
