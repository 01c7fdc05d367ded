"""Thin, checked calls of the CUDA driver API: memory at chosen addresses, modules, our own kernels, events.

Knows one device and its primary context. Must not know plans or verdicts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BLOCK = 2 << 20  # granularity of physical memory
RESERVE = 32 << 20  # address hints are honoured at this granularity


class CudaError(Exception):
    """A driver call that failed: its name and what the driver said."""


def driver() -> Any:
    from cuda.bindings import driver as module

    return module


def ok(result: tuple[Any, ...], what: str) -> Any:
    """The values of a cuda-bindings call, or CudaError."""
    code, *values = result
    if int(code) != 0:
        raise CudaError(f"{what}: {getattr(code, 'name', code)}")
    return values[0] if len(values) == 1 else tuple(values)


class Device:
    """One GPU with its primary context current in this thread."""

    def __init__(self, index: int = 0) -> None:
        self.cu = driver()
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

    def read(self, address: int, size: int) -> bytes:
        data = (ctypes.c_uint8 * size)()
        ok(self.cu.cuMemcpyDtoH(ctypes.addressof(data), address, size), "cuMemcpyDtoH")
        return bytes(data)

    def write(self, address: int, data: bytes) -> None:
        ok(self.cu.cuMemcpyHtoD(address, data, len(data)), "cuMemcpyHtoD")


class Range:
    """Reserved addresses. Physical memory is mapped into it piece by piece; access is opened and closed as a whole."""

    def __init__(self, device: Device, address: int, size: int) -> None:
        """Reserve `size` bytes, at `address` when that is not 0. CudaError when the driver moves it."""
        self.device, cu = device, device.cu
        low = address // RESERVE * RESERVE
        self.size = -(-(address + size - low) // RESERVE) * RESERVE
        self.base = int(ok(cu.cuMemAddressReserve(self.size, RESERVE, low, 0), "cuMemAddressReserve"))
        if address and self.base != low:
            raise CudaError(f"the driver gave {self.base:#x} for {low:#x}: another start is needed")
        self.mapped: list[tuple[int, int]] = []

    def map(self, address: int, size: int, memory: Any, offset: int = 0) -> None:
        ok(self.device.cu.cuMemMap(address, size, offset, memory, 0), "cuMemMap")
        self.mapped.append((address, size))

    def access(self, allowed: bool) -> None:
        cu = self.device.cu
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = int(self.device.handle)
        flags = cu.CUmemAccess_flags
        access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if allowed else flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
        for address, size in self.mapped:
            ok(cu.cuMemSetAccess(address, size, [access], 1), "cuMemSetAccess")


def physical(device: Device, size: int) -> Any:
    """A physical allocation of `size` bytes (a multiple of BLOCK) that may be mapped at several addresses."""
    cu = device.cu
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = int(device.handle)
    return ok(cu.cuMemCreate(size, prop, 0), "cuMemCreate")


def private(device: Device, size: int) -> int:
    """Address of `size` bytes that no plan has ever heard of, at an address of the driver's choosing."""
    whole = -(-size // BLOCK) * BLOCK
    reserved = Range(device, 0, whole)
    reserved.map(reserved.base, whole, physical(device, whole))
    reserved.access(True)
    return reserved.base


class Kernels:
    """Our own kernels (contents.cu), compiled for this device."""

    THREADS = 256

    def __init__(self, device: Device) -> None:
        self.device = device
        image = compiled((Path(__file__).parent / "contents.cu").read_bytes(), device.arch)
        self.module = ok(device.cu.cuModuleLoadData(image), "cuModuleLoadData")

    def launch(self, name: str, arguments: Sequence[Any], *, blocks: int = 0, shared: int = 0) -> None:
        """Queue a kernel of ours. Arguments are ctypes values."""
        cu, device = self.device.cu, self.device
        function = ok(cu.cuModuleGetFunction(self.module, name.encode()), f"cuModuleGetFunction {name}")
        if shared:
            limit = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            ok(cu.cuFuncSetAttribute(function, limit, shared), "cuFuncSetAttribute")
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        grid = blocks or 8 * device.processors
        shape = (grid, 1, 1, self.THREADS, 1, 1, shared)
        ok(cu.cuLaunchKernel(function, *shape, device.stream, ctypes.addressof(pointers), 0), f"cuLaunchKernel {name}")


def compiled(source: bytes, arch: tuple[int, ...]) -> bytes:
    """A cubin of `source` for `arch`, by NVRTC."""
    from cuda.bindings import nvrtc

    program = ok(nvrtc.nvrtcCreateProgram(source, b"contents.cu", 0, [], []), "nvrtcCreateProgram")
    options = [f"--gpu-architecture=sm_{arch[0]}{arch[1]}".encode()]
    done = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(done[0]) != 0:
        size = ok(nvrtc.nvrtcGetProgramLogSize(program), "nvrtcGetProgramLogSize")
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise CudaError(f"contents.cu does not compile: {log.decode()}")
    size = ok(nvrtc.nvrtcGetCUBINSize(program), "nvrtcGetCUBINSize")
    image = bytes(size)
    ok(nvrtc.nvrtcGetCUBIN(program, image), "nvrtcGetCUBIN")
    return image
