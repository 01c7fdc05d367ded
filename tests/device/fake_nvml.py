"""NVML without a card: answers from a table, and remembers what it was asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

GIB = 2**30


def process(pid: int, memory: int | None = GIB) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


class FakeNvml:
    """`cards`: one dictionary a card, call -> answer; a callable is called with what follows the card. `system`: calls about no card."""

    def __init__(self, *cards: dict[str, Any], system: dict[str, Any] | None = None) -> None:
        self.cards = [h200(index) | card for index, card in enumerate(cards)]
        self.system = {"SystemGetDriverVersion": "580.159.04", "SystemGetCudaDriverVersion_v2": 13000} | (system or {})
        self.asked: list[str] = []
        self.events: list[int] = []

    def __call__(self, call: str, *arguments: Any) -> Any:
        self.asked.append(call)
        if call == "DeviceGetCount":
            return len(self.cards)
        if call == "DeviceGetHandleByIndex":
            return arguments[0]
        if call == "DeviceGetHandleByUUID":
            return next((i for i, card in enumerate(self.cards) if card["DeviceGetUUID"] == arguments[0]), None)
        if call == "DeviceGetMigDeviceHandleByIndex":
            slices = self.cards[arguments[0]].get("slices", [])
            return slices[arguments[1]] if arguments[1] < len(slices) else None
        if call == "DeviceGetUUID" and isinstance(arguments[0], str):
            return arguments[0]
        if call == "EventSetWait_v2":
            return SimpleNamespace(eventData=self.events.pop(0)) if self.events else None
        if not call.startswith("Device"):
            return self.system.get(call)
        answer = self.cards[arguments[0]].get(call)
        return answer(*arguments[1:]) if callable(answer) else answer


def h200(index: int) -> dict[str, Any]:
    """What such a card may answer; made up."""
    return {
        "DeviceGetName": "NVIDIA H200",
        "DeviceGetUUID": f"GPU-{index}{index}{index}aaaa-0000-0000-0000-000000000000",
        "DeviceGetCudaComputeCapability": (9, 0),
        "DeviceGetMemoryInfo": SimpleNamespace(total=140 * GIB, free=139 * GIB),
        "DeviceGetPciInfo": SimpleNamespace(busId=f"00000000:{index + 1:02X}:00.0"),
        "DeviceGetMinorNumber": index + 2,
        "DeviceGetMigMode": [0, 0],
        "DeviceGetEccMode": [1, 1],
        "DeviceGetPersistenceMode": 1,
        "DeviceGetComputeMode": 0,
        "DeviceGetMaxClockInfo": lambda kind: (1980, 1980, 3201)[kind],
        "DeviceGetApplicationsClock": lambda kind: (1980, 1980, 3201)[kind],
        "DeviceGetPowerManagementLimit": 700000,
        "DeviceGetComputeRunningProcesses": [],
        "DeviceGetGraphicsRunningProcesses": [],
        "DeviceGetCurrentClocksEventReasons": 1,
        "DeviceGetTemperature": lambda sensor: 34,
        "DeviceGetClockInfo": lambda kind: (345, 345, 3201)[kind],
        "DeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0),
        "DeviceGetPowerUsage": 75500,
        "DeviceGetSupportedEventTypes": 8,
    }
