"""An NVIDIA card as the device: which there are, which one is judged on, its fingerprint and its device nodes.

Changes no setting. Must not know tasks or verdicts. Who uses a card and how it runs: nvidia_health.py.
"""

from __future__ import annotations

import glob
import hashlib
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from keepfast.device import cpu, nvidia_software, nvml
from keepfast.device.lease import held_card
from keepfast.device.nvidia_health import Health, Process, health
from keepfast.device.nvidia_watch import Watcher
from keepfast.device.nvml import Nvml
from keepfast.errors import MachineError, UsageError
from keepfast.model import Machine

__all__ = ["Card", "Health", "Process", "Watcher", "cards", "choose", "fingerprint", "health", "held_card", "nodes"]

GRAPHICS, SM, MEMORY = 0, 1, 2  # nvmlClockType_t
PROHIBITED, EXCLUSIVE = 2, (1, 3)  # nvmlComputeMode_t


class Card(Struct, frozen=True):
    """One card. `slices`: UUIDs of its MIG instances; `slice`: the one that was chosen. None: the card does not say."""

    index: int
    name: str
    uuid: str
    capability: tuple[int, int]
    memory_bytes: int
    free_bytes: int
    pci: str
    minor: int  # of /dev/nvidiaN
    mig: bool = False
    slices: tuple[str, ...] = ()
    ecc: bool | None = None
    persistence: bool | None = None
    compute_mode: int = 0
    slice: str = ""

    @property
    def visible(self) -> str:
        """What CUDA_VISIBLE_DEVICES must say, so that this card, or slice of it, is device 0."""
        return self.slice or self.uuid


def cards(ask: Nvml | None = None) -> tuple[Card, ...]:
    """All cards, by NVML's index. MachineError where there is no driver."""
    with nvml.opened(ask) as answer:
        return tuple(_card(answer, index) for index in range(answer("DeviceGetCount") or 0))


def drivers(ask: Nvml | None = None) -> tuple[str, tuple[int, int]]:
    """Version of the driver, and of the CUDA that it offers."""
    with nvml.opened(ask) as answer:
        number = answer("SystemGetCudaDriverVersion_v2") or 0
        return answer("SystemGetDriverVersion") or "", (number // 1000, number % 1000 // 10)


def choose(wanted: int | str | None = None, ask: Nvml | None = None) -> Card:
    """The card named by index or UUID (the start of one is enough), else the first fit one, a card that nobody computes on if there is.

    UsageError: no such card. MachineError: it cannot be judged on, and what to do.
    """
    with nvml.opened(ask) as answer:
        found = cards(answer)
        if not found:
            raise MachineError(nvml.NO_GPU, next_step=nvml.NO_GPU_STEP)
        _driver_fits(answer)
        if wanted is not None:
            return _fit(_named(found, str(wanted)))
        usable = [card for card in found if _unfit(card) is None]
        free = [card for card in usable if not health(card.uuid, answer).busy]
        return _fit((free or usable or list(found))[0])


def fingerprint(walls: str, uuid: str, ask: Nvml | None = None) -> Machine:
    """Facts that must agree before two times are compared; `hash` is over all of them, `gpu` is the card's name."""
    host = cpu.fingerprint(walls)
    with nvml.opened(ask) as answer:
        device = _handle(answer, uuid)
        name = _name(answer, device)
        facts = (name, uuid, *drivers(answer), *_settings(answer, device), host.cpu, host.kernel, *nvidia_software.versions())
    return replace(host, gpu=name, hash=hashlib.sha256(repr(facts).encode()).hexdigest()[:16])


def nodes(card: Card) -> tuple[str, ...]:
    """The device nodes that a walled process needs for this card; some may not exist."""
    caps = sorted(glob.glob("/dev/nvidia-caps/*")) if card.mig else []
    return (f"/dev/nvidia{card.minor}", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", *caps)


# --------------------------------------------------------------------------------------------- asking


def _card(ask: Nvml, index: int) -> Card:
    device = ask("DeviceGetHandleByIndex", index)
    memory, mig, minor = ask("DeviceGetMemoryInfo", device), ask("DeviceGetMigMode", device), ask("DeviceGetMinorNumber", device)
    ecc, persistence, pci = ask("DeviceGetEccMode", device), ask("DeviceGetPersistenceMode", device), ask("DeviceGetPciInfo", device)
    return Card(
        index=index,
        name=_name(ask, device),
        uuid=_text(ask("DeviceGetUUID", device)),
        capability=tuple(ask("DeviceGetCudaComputeCapability", device) or (0, 0)),
        memory_bytes=memory.total if memory else 0,
        free_bytes=memory.free if memory else 0,
        pci=_text(pci.busId) if pci else "",
        minor=index if minor is None else minor,
        mig=bool(mig and mig[0]),
        slices=_slices(ask, device) if mig and mig[0] else (),
        ecc=None if ecc is None else bool(ecc[0]),
        persistence=None if persistence is None else bool(persistence),
        compute_mode=ask("DeviceGetComputeMode", device) or 0,
    )


def _slices(ask: Nvml, device: Any) -> tuple[str, ...]:
    most = ask("DeviceGetMaxMigDeviceCount", device) or 0
    found = (ask("DeviceGetMigDeviceHandleByIndex", device, index) for index in range(most))
    return tuple(_text(ask("DeviceGetUUID", one)) for one in found if one is not None)


def _settings(ask: Nvml, device: Any) -> tuple[Any, ...]:
    """What decides how fast the card may run, and how it is shared."""
    asked = ("DeviceGetMaxClockInfo", "DeviceGetApplicationsClock")
    clocks = tuple(ask(call, device, kind) for kind in (GRAPHICS, SM, MEMORY) for call in asked)
    modes = tuple(tuple(ask(call, device) or ()) for call in ("DeviceGetEccMode", "DeviceGetMigMode"))
    return (*clocks, ask("DeviceGetPowerManagementLimit", device), *modes)


def _handle(ask: Nvml, uuid: str) -> Any:
    if (device := ask("DeviceGetHandleByUUID", uuid)) is None:
        raise MachineError(f"the GPU {uuid} is not here any more", next_step="nvidia-smi -L   lists those that are")
    return device


def _name(ask: Nvml, device: Any) -> str:
    return _text(ask("DeviceGetName", device))


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


# --------------------------------------------------------------------------------------------- choosing


def _named(found: tuple[Card, ...], wanted: str) -> Card:
    if wanted.isdigit():
        fitting = [card for card in found if card.index == int(wanted)]
    else:
        fitting = [replace(card, slice=one) for card in found for one in card.slices if one.lower().startswith(wanted.lower())]
        fitting = fitting or [card for card in found if wanted and card.uuid.lower().startswith(wanted.lower())]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(f"{card.index} ({card.uuid})" for card in found)
    what = f"several GPUs are called `{wanted}`" if fitting else f"no GPU `{wanted}`"
    raise UsageError(f"{what}; this machine has {known}", next_step="nvidia-smi -L")


def _fit(card: Card) -> Card:
    if refused := _unfit(card):
        raise refused
    return replace(card, slice=card.slice or card.slices[0]) if card.mig else card


def _unfit(card: Card) -> MachineError | None:
    """Why nothing can be judged on this card, whoever uses it."""
    which = f"GPU {card.index} ({card.name})"
    if card.mig and not card.slices:
        smi = f"sudo nvidia-smi -i {card.index}"
        step = f"{smi} -mig 0   ends MIG mode;   sudo nvidia-smi mig -i {card.index} -cgi 0 -C   makes an instance of all of it"
        return MachineError(f"{which} is in MIG mode and has no instance", next_step=step)
    if card.compute_mode in EXCLUSIVE:
        step = f"sudo nvidia-smi -i {card.index} -c DEFAULT"
        return MachineError(f"{which} is in exclusive-process mode, and keepfast needs two processes on it", next_step=step)
    if card.compute_mode == PROHIBITED:
        return MachineError(f"{which} is closed to computing", next_step=f"sudo nvidia-smi -i {card.index} -c DEFAULT")
    return None


def _driver_fits(ask: Nvml) -> None:
    driver, (major, minor) = drivers(ask)
    for package, needed in nvidia_software.cuda_needed():
        if 0 < major < needed:
            what = f"the NVIDIA driver {driver} offers CUDA {major}.{minor}, and {package} needs CUDA {needed}"
            step = f"install a newer driver, or packages made for CUDA {major}: pip install 'cuda-bindings<{major + 1}' and torch likewise"
            raise MachineError(what, next_step=step)
