"""Who uses a card, and how it runs now: processes, throttling, temperature, clocks. Looks only; changes nothing.

Owns which throttle reasons spoil a measurement and which processes are no neighbours. Must not know rounds or verdicts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct

from keepfast.device import nvml
from keepfast.device.nvml import Nvml
from keepfast.errors import MachineError

# Bits of nvmlClocksEventReasons: (bit, words, whether a measurement is spoiled by it).
REASONS = (
    (0x001, "idle", False),
    (0x002, "clocks set by the user", False),
    (0x004, "power cap", False),  # of every card under load: part of how fast it is
    (0x008, "hardware slowdown", True),
    (0x010, "held to the clocks of another card (sync boost)", True),
    (0x020, "too hot (software slowdown)", True),
    (0x040, "too hot (hardware slowdown)", True),
    (0x080, "power brake", True),
    (0x100, "display clocks", False),
)
DISPLAYS = (
    "Xorg", "Xwayland", "X", "gnome-shell", "kwin_wayland", "kwin_x11", "plasmashell", "mutter", "sway", "weston", "Hyprland", "cinnamon",
    "compiz", "xfwm4", "picom", "cosmic-comp", "gdm-x-session",
)  # fmt: skip
SM, MEMORY = 1, 2  # nvmlClockType_t
FIRST_PID_NAMESPACE = 0xEFFFFFFC  # inode of /proc/self/ns/pid outside containers: a constant of Linux


class Process(Struct, frozen=True):
    """One that holds memory of the card. `ours`: of this process's family. `hidden`: not of this container, which does not see it."""

    pid: int
    name: str
    memory_bytes: int | None
    kind: Literal["compute", "graphics"]
    ours: bool = False
    hidden: bool = False

    @property
    def display(self) -> bool:
        return self.kind == "graphics" and self.name in DISPLAYS

    def words(self) -> str:
        who = "a process outside this container" if self.hidden else f"{self.name} (pid {self.pid})"
        return f"{who}, {self.memory_bytes / 2**30:.1f} GiB" if self.memory_bytes else who


class Health(Struct, frozen=True):
    """One look. `spoiled`: reasons why a time measured now would be wrong; `noted`: what holds the clocks but is part of this card."""

    processes: tuple[Process, ...]
    spoiled: tuple[str, ...]
    noted: tuple[str, ...]
    temperature: int | None  # degrees Celsius
    sm_mhz: int | None
    memory_mhz: int | None
    utilisation: int | None  # per cent of the last fraction of a second with any kernel on the card
    watts: float | None

    @property
    def busy(self) -> tuple[Process, ...]:
        """Others that may compute. Display servers are none, and hidden ones may be ours."""
        return tuple(p for p in self.processes if not (p.ours or p.display or p.hidden))


def health(uuid: str, ask: Nvml | None = None) -> Health:
    """Look at a card. MachineError when it is not there."""
    with nvml.opened(ask) as answer:
        if (device := answer("DeviceGetHandleByUUID", uuid)) is None:
            raise MachineError(f"the GPU {uuid} is not here any more", next_step="nvidia-smi -L   lists those that are")
        spoiled, noted = throttled(answer, device)
        share, milliwatts = answer("DeviceGetUtilizationRates", device), answer("DeviceGetPowerUsage", device)
        return Health(
            processes=processes(answer, device),
            spoiled=spoiled,
            noted=noted,
            temperature=answer("DeviceGetTemperature", device, 0),
            sm_mhz=answer("DeviceGetClockInfo", device, SM),
            memory_mhz=answer("DeviceGetClockInfo", device, MEMORY),
            utilisation=share.gpu if share else None,
            watts=None if milliwatts is None else milliwatts / 1000,
        )


def throttled(ask: Nvml, device: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What holds the clocks down now, in words: that which spoils a measurement, and that which does not."""
    bits = ask("DeviceGetCurrentClocksEventReasons", device)
    if bits is None:
        bits = ask("DeviceGetCurrentClocksThrottleReasons", device) or 0  # its name before driver 535
    found = [(words, spoils) for bit, words, spoils in REASONS if bits & bit]
    return tuple(words for words, spoils in found if spoils), tuple(words for words, spoils in found if not spoils)


def processes(ask: Nvml, device: Any) -> tuple[Process, ...]:
    """Compute first. One that both computes and draws computes."""
    found: dict[int, Process] = {}
    family = _family(os.getpid())
    inside = _in_container()
    for kind, call in (("compute", "DeviceGetComputeRunningProcesses"), ("graphics", "DeviceGetGraphicsRunningProcesses")):
        for one in ask(call, device) or ():
            process = _process((one.pid, one.usedGpuMemory), kind, family, inside)
            if process is not None:
                found.setdefault(one.pid, process)
    return tuple(found.values())


def _process(one: tuple[int, int | None], kind: Any, family: set[int], inside: bool) -> Process | None:
    """None: it ended while we looked."""
    pid, memory = one
    name = _name(pid)
    if inside and not (name and _uses_card(pid)):
        return Process(pid, "", memory, kind, hidden=True)
    return Process(pid, name, memory, kind, ours=pid in family) if name else None


def _in_container() -> bool:
    """In a PID namespace of its own, where NVML may give the numbers of the outermost one."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino != FIRST_PID_NAMESPACE
    except OSError:
        return True


def _uses_card(pid: int) -> bool:
    """Whether a process has a card open; of other users' it cannot be seen, and is believed."""
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except PermissionError:
        return True
    except OSError:
        return False
    return any(link.startswith("/dev/nvidia") for link in links)


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _family(ancestor: int) -> set[int]:
    """A process and everything that it started."""
    parents = dict(_parents(int(name) for name in os.listdir("/proc") if name.isdigit()))
    family = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _parents(pids: Iterable[int]) -> Iterable[tuple[int, int]]:
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            yield pid, int(file.read().rpartition(b")")[2].split()[1])
