"""Why the launcher cannot go on, in the words of a Fault. Must not know what was asked."""

from __future__ import annotations

from keepfast.gpu.driver import CudaError, Moved
from keepfast.gpu.messages import Fault

OUT_OF_MEMORY = 2

# Errors of the driver that a kernel caused while it ran. After one of them the context is lost.
ASYNCHRONOUS = {
    700: "a kernel read or wrote memory that is not mapped (illegal address)",
    702: "a kernel ran longer than the driver allows (launch timeout)",
    710: "a kernel stopped at an assert",
    714: "a kernel corrupted its call stack, or it overflowed (hardware stack error)",
    715: "a kernel ran into an illegal instruction",
    716: "a kernel used an address that is not aligned as its instruction needs (misaligned address)",
    717: "a kernel used an address of the wrong address space",
    718: "a kernel jumped to an address that is no instruction (invalid program counter)",
    719: "a kernel failed while it ran (launch failure)",
    721: "a kernel ended without giving its tensor memory back",
}


class Failed(Exception):
    """What is answered instead of a result. `kind` and `arm` as in Fault; the text is a sentence."""

    def __init__(self, kind: str, detail: str, arm: int = -1) -> None:
        super().__init__(detail)
        self.fault = Fault(kind, detail, arm)


def asked(condition: bool, otherwise: str) -> None:
    """Fault "machine" unless `condition`: the judge asked for what cannot be."""
    if not condition:
        raise Failed("machine", otherwise)


def refused(kind: str, what: str, error: CudaError, arm: int) -> Failed:
    """A Failed for work of an arm that the driver did not take, unless the trouble is another: memory, or a kernel that ran."""
    if error.code in ASYNCHRONOUS or error.code == OUT_OF_MEMORY:
        return Failed(of(error, arm).kind, f"{what}: {of(error, arm).detail}", arm)
    return Failed(kind, f"{what}: {error}", arm)


def of(error: CudaError, arm: int) -> Fault:
    """`arm`: whose kernels ran last, -1 for none."""
    if error.code in ASYNCHRONOUS and arm >= 0:
        return Fault("fault", ASYNCHRONOUS[error.code], arm)
    if error.code == OUT_OF_MEMORY:
        return Fault("memory", f"the card has no memory left ({error})", arm)
    if isinstance(error, Moved):
        return Fault("collision", f"{error}: the addresses are in use, another start is needed", arm)
    return Fault("machine", str(error))


def lost(error: CudaError) -> bool:
    """Whether the context is gone, and with it all that this process could still do."""
    return error.code in ASYNCHRONOUS
