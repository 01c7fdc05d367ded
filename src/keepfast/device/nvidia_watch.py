"""What befalls a card while something is measured on it: heat, other processes, memory errors, Xids.

Owns which of these make an evaluation void. A candidate must not be able to: errors that a program causes are only noted.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from msgspec import Struct

from keepfast.device.nvidia_health import Health, health
from keepfast.device.nvml import Library, Nvml
from keepfast.errors import MachineError

LOOK_S = 0.5
HEAT_NS = 1_000_000  # of lost time; less than a millisecond is no part of a round
THERMAL, SYNC_BOOST = 1, 2  # nvmlPerfPolicyType_t
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0  # nvmlMemoryErrorType_t, nvmlEccCounterType_t
XID_EVENT = 8  # nvmlEventTypeXidCriticalError
KMSG = "/dev/kmsg"
LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")

# What a program alone can cause: an exception in a kernel, a bad address, a killed channel, a kernel that hangs.
XIDS_OF_PROGRAMS = {13, 31, 32, 43, 45, 68, 69, 109}


class Counters(Struct, frozen=True):
    """Counts since the driver was loaded; None: this card does not count."""

    heat_ns: int | None
    boost_ns: int | None
    uncorrected: int | None
    corrected: int | None
    retired: int | None
    replays: int | None


class Xids(Protocol):
    """Xids, NVIDIA's numbers for errors. None: nobody tells us."""

    def since(self) -> tuple[int, ...] | None: ...

    def close(self) -> None: ...


class Watcher:
    """Looks at a card before and after an evaluation. Use in a `with` block, or close it."""

    def __init__(self, uuid: str, ask: Nvml | None = None) -> None:
        self.uuid = uuid
        self.notes: tuple[str, ...] = ()  # of the last look: what is worth saying and no reason to measure again
        self._library = Library() if ask is None else None
        self._ask: Nvml = ask or self._library or Library()
        self._device = self._handle()
        self._xids = xids(self._ask, self._device)
        self._counters = counters(self._ask, self._device)
        self._others: set[int] = set()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._xids.close()
        if self._library is not None:
            self._library.close()
            self._library = None

    def fit(self, timeout_s: float, sleep: Callable[[float], None] = time.sleep) -> tuple[str, ...]:
        """Waits until nobody else computes on the card and nothing holds its clocks. What is still in the way at the end, or nothing."""
        end = time.monotonic() + timeout_s
        while (found := self._in_the_way()) and (left := end - time.monotonic()) > 0:
            sleep(min(LOOK_S, left))
        return found

    def before(self) -> tuple[str, ...]:
        """Begins an evaluation. Reasons why it would be void already now."""
        look = health(self.uuid, self._ask)
        self._others = {process.pid for process in look.busy}
        self._xids.since()
        self._counters = counters(self._ask, self._device)
        self.notes = look.noted
        return _throttled(look)

    def after(self) -> tuple[str, ...]:
        """Reasons why what was measured since before() is void; the next evaluation may begin here."""
        look = health(self.uuid, self._ask)
        seen, self._counters = self._counters, counters(self._ask, self._device)
        numbers = self._xids.since()
        new = tuple(process for process in look.busy if process.pid not in self._others)
        self._others |= {process.pid for process in new}
        programs = tuple(n for n in numbers or () if n in XIDS_OF_PROGRAMS)
        machine = tuple(n for n in numbers or () if n not in XIDS_OF_PROGRAMS)
        lost, noted = changes(seen, self._counters)
        self.notes = (*look.noted, *noted, *(f"Xid {n}, which a program can cause" for n in programs))
        appeared = tuple(f"{process.words()} began to use the card" for process in new)
        return (*_throttled(look), *lost, *appeared, *(f"the driver reported an error of the card, Xid {n}" for n in machine))

    def _in_the_way(self) -> tuple[str, ...]:
        look = health(self.uuid, self._ask)
        return (*(f"{process.words()} uses the card" for process in look.busy), *_throttled(look))

    def _handle(self) -> Any:
        if (device := self._ask("DeviceGetHandleByUUID", self.uuid)) is None:
            raise MachineError(f"the GPU {self.uuid} is not here any more", next_step="nvidia-smi -L   lists those that are")
        return device


def _throttled(look: Health) -> tuple[str, ...]:
    return tuple(f"the card runs slower than it could: {words}" for words in look.spoiled)


def counters(ask: Nvml, device: Any) -> Counters:
    heat, boost = (ask("DeviceGetViolationStatus", device, policy) for policy in (THERMAL, SYNC_BOOST))
    rows, pages = ask("DeviceGetRemappedRows", device), [ask("DeviceGetRetiredPages", device, cause) for cause in (0, 1)]
    retired = rows[0] + rows[1] if rows else None if pages[0] is None and pages[1] is None else sum(len(p or ()) for p in pages)
    return Counters(
        heat_ns=heat.violationTime if heat else None,
        boost_ns=boost.violationTime if boost else None,
        uncorrected=ask("DeviceGetTotalEccErrors", device, UNCORRECTED, VOLATILE),
        corrected=ask("DeviceGetTotalEccErrors", device, CORRECTED, VOLATILE),
        retired=retired,
        replays=ask("DeviceGetPcieReplayCounter", device),
    )


def changes(old: Counters, new: Counters) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What happened between two counts: reasons to measure again, and what is only worth saying."""
    heat, boost = _more(old.heat_ns, new.heat_ns), _more(old.boost_ns, new.boost_ns)
    lost = [f"the card lost {heat / 1e6:.0f} ms to heat"] if heat > HEAT_NS else []
    lost += [f"the card was held to another card's clocks for {boost / 1e6:.0f} ms"] if boost > HEAT_NS else []
    lost += [f"{n} uncorrectable errors of the card's memory"] if (n := _more(old.uncorrected, new.uncorrected)) else []
    lost += [f"{n} pages of the card's memory were replaced"] if (n := _more(old.retired, new.retired)) else []
    noted = [f"{n} corrected errors of the card's memory"] if (n := _more(old.corrected, new.corrected)) else []
    noted += [f"{n} transfers over PCIe were repeated"] if (n := _more(old.replays, new.replays)) else []
    return tuple(lost), tuple(noted)


def _more(old: int | None, new: int | None) -> int:
    return 0 if old is None or new is None else max(0, new - old)


# --------------------------------------------------------------------------------------------- Xids


def xids(ask: Nvml, device: Any, kmsg: str = KMSG) -> Xids:
    """Whoever tells us of Xids from now on: NVML, else the kernel's log, else nobody."""
    told = (ask("DeviceGetSupportedEventTypes", device) or 0) & XID_EVENT
    if told and (events := ask("EventSetCreate")) is not None:
        ask("DeviceRegisterEvents", device, XID_EVENT, events)
        return _Events(ask, events)
    pci = ask("DeviceGetPciInfo", device)
    try:
        fd = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return _Nobody()
    os.lseek(fd, 0, os.SEEK_END)
    return _Kmsg(fd, pci.busId if pci else "")


class _Events:
    MOST = 100

    def __init__(self, ask: Nvml, events: Any) -> None:
        self._ask, self._events = ask, events

    def since(self) -> tuple[int, ...] | None:
        found: list[int] = []
        while len(found) < self.MOST and (event := self._ask("EventSetWait_v2", self._events, 0)) is not None:
            found.append(int(event.eventData))
        return tuple(found)

    def close(self) -> None:
        self._ask("EventSetFree", self._events)


class _Kmsg:
    def __init__(self, fd: int, pci: str) -> None:
        self._fd, self._pci = fd, pci.lower()

    def since(self) -> tuple[int, ...] | None:
        """Reads on to the end of the log. A record that was overwritten before it was read (EPIPE) is skipped."""
        text = b""
        while True:
            try:
                piece = os.read(self._fd, 8192)
            except BrokenPipeError:
                continue
            except BlockingIOError:
                break
            except OSError:
                return None
            if not piece:
                break
            text += piece
        found = LINE.findall(text.decode(errors="replace"))
        return tuple(int(number) for pci, number in found if not self._pci or self._pci.startswith(_long(pci)))

    def close(self) -> None:
        os.close(self._fd)


def _long(pci: str) -> str:
    """NVML's way of writing what the log calls 0000:1b:00: eight digits of domain."""
    domain, _, rest = pci.lower().partition(":")
    return f"{domain:0>8}:{rest}"


class _Nobody:
    def since(self) -> tuple[int, ...] | None:
        return None

    def close(self) -> None:
        return None
