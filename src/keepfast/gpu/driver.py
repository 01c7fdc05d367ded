"""Thin, checked calls of the CUDA driver API: one device, its memory at chosen addresses, events.

Knows one device and its primary context. Must not know plans, kernels of ours or verdicts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

BLOCK = 2 << 20  # granularity of physical memory
RESERVE = 32 << 20  # address hints are honoured at this granularity


class CudaError(Exception):
    """A driver call that failed: its name and what the driver said. `code` is the driver's number, 0 when the words are ours."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Moved(CudaError):
    """Addresses that were asked for are in use in this process."""


def driver() -> Any:
    from cuda.bindings import driver as module

    return module


def ok(result: tuple[Any, ...], what: str) -> Any:
    """The values of a cuda-bindings call, or CudaError."""
    code, *values = result
    if int(code) != 0:
        raise CudaError(f"{what}: {getattr(code, 'name', code)}", int(code))
    return values[0] if len(values) == 1 else tuple(values)


class Device:
    """One GPU with its primary context current in this thread. `cu`: the driver's module, another one in tests."""

    def __init__(self, index: int = 0, cu: Any = None) -> None:
        self.cu = driver() if cu is None else cu
        ok(self.cu.cuInit(0), "cuInit")
        self.handle = ok(self.cu.cuDeviceGet(index), "cuDeviceGet")
        self.context = ok(self.cu.cuDevicePrimaryCtxRetain(self.handle), "cuDevicePrimaryCtxRetain")
        ok(self.cu.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")
        attribute = self.cu.CUdevice_attribute
        self.processors = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self.l2_bytes = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
        self.shared_bytes = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        self.arch = tuple(
            self._attribute(a)
            for a in (attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        )
        self.name = ok(self.cu.cuDeviceGetName(128, self.handle), "cuDeviceGetName").decode().strip("\0")
        self.stream = ok(self.cu.cuStreamCreate(1), "cuStreamCreate")  # 1: non-blocking

    def _attribute(self, attribute: Any) -> int:
        return int(ok(self.cu.cuDeviceGetAttribute(attribute, self.handle), "cuDeviceGetAttribute"))

    def synchronise(self) -> None:
        ok(self.cu.cuStreamSynchronize(self.stream), "cuStreamSynchronize")

    def event(self) -> Any:
        return ok(self.cu.cuEventCreate(0), "cuEventCreate")

    def record(self, event: Any) -> None:
        ok(self.cu.cuEventRecord(event, self.stream), "cuEventRecord")

    def elapsed_ms(self, first: Any, last: Any) -> float:
        return float(ok(self.cu.cuEventElapsedTime(first, last), "cuEventElapsedTime"))

    def memory(self) -> tuple[int, int]:
        """Bytes of the card that are free, and all it has."""
        free, total = ok(self.cu.cuMemGetInfo(), "cuMemGetInfo")
        return int(free), int(total)

    def read(self, address: int, size: int) -> bytes:
        data = (ctypes.c_uint8 * size)()
        self.read_to(address, ctypes.addressof(data), size)
        return bytes(data)

    def read_to(self, address: int, host: int, size: int) -> None:
        ok(self.cu.cuMemcpyDtoH(host, address, size), "cuMemcpyDtoH")

    def write(self, address: int, data: bytes) -> None:
        if data:
            self.write_from(address, ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, len(data))

    def write_from(self, address: int, host: int, size: int) -> None:
        """In the stream, and waited for: a plain copy may still be under way when the next kernel starts."""
        ok(self.cu.cuMemcpyHtoDAsync(address, host, size, self.stream), "cuMemcpyHtoDAsync")
        self.synchronise()

    def fill(self, address: int, size: int, word: int) -> None:
        """Queue: every four bytes become `word`."""
        ok(self.cu.cuMemsetD32Async(address, word, size // 4, self.stream), "cuMemsetD32Async")


class Range:
    """Reserved addresses. Physical memory is mapped into it piece by piece; access is opened and closed as a whole."""

    def __init__(self, device: Device, address: int, size: int) -> None:
        """Reserve `size` bytes, at `address` when that is not 0. Moved when the driver gives other addresses."""
        self.device, cu = device, device.cu
        low = address // RESERVE * RESERVE
        self.size = -(-(address + size - low) // RESERVE) * RESERVE
        self.base = int(ok(cu.cuMemAddressReserve(self.size, RESERVE, low, 0), "cuMemAddressReserve"))
        self.mapped: list[tuple[int, int]] = []
        if address and self.base != low:
            other = self.base
            self.close()
            raise Moved(f"the driver gave {other:#x} for {low:#x}")

    def map(self, address: int, size: int, memory: Any) -> None:
        """A whole allocation: the driver takes no offset."""
        ok(self.device.cu.cuMemMap(address, size, 0, memory, 0), "cuMemMap")
        self.mapped.append((address, size))

    def access(self, allowed: bool) -> None:
        cu = self.device.cu
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = int(self.device.handle)
        flags = cu.CUmemAccess_flags
        access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if allowed else flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
        for address, size in joined(self.mapped):
            ok(cu.cuMemSetAccess(address, size, [access], 1), "cuMemSetAccess")

    def close(self) -> None:
        """Unmap what is mapped and give the addresses back."""
        cu = self.device.cu
        for address, size in self.mapped:
            ok(cu.cuMemUnmap(address, size), "cuMemUnmap")
        self.mapped.clear()
        ok(cu.cuMemAddressFree(self.base, self.size), "cuMemAddressFree")


def joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(address, size) spans in order, those that touch made one."""
    found: list[tuple[int, int]] = []
    for address, size in sorted(spans):
        if found and sum(found[-1]) == address:
            found[-1] = (found[-1][0], found[-1][1] + size)
        else:
            found.append((address, size))
    return found


def physical(device: Device, size: int, *, exportable: bool = False) -> Any:
    """A physical allocation of `size` bytes (a multiple of BLOCK) that may be mapped at several addresses."""
    cu = device.cu
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = int(device.handle)
    if exportable:
        prop.requestedHandleTypes = _descriptor(cu)
    return ok(cu.cuMemCreate(size, prop, 0), "cuMemCreate")


def release(device: Device, memory: Any) -> None:
    """Give an allocation back; it lives on while it is mapped."""
    ok(device.cu.cuMemRelease(memory), "cuMemRelease")


def exported(device: Device, memory: Any) -> int:
    """A descriptor of an exportable allocation, for another process. The caller closes it."""
    return int(ok(device.cu.cuMemExportToShareableHandle(memory, _descriptor(device.cu), 0), "cuMemExportToShareableHandle"))


def imported(device: Device, fd: int) -> Any:
    """The allocation behind a descriptor that another process exported. The descriptor stays the caller's."""
    return ok(device.cu.cuMemImportFromShareableHandle(fd, _descriptor(device.cu)), "cuMemImportFromShareableHandle")


def _descriptor(cu: Any) -> Any:
    return cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
