"""Our own kernels (contents.cu): compiled for the card, and launches of them whose arguments are laid out once.

Must not know cases or plans.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keepfast.gpu.driver import CudaError, Device, ok

THREADS = 256
REGISTERS = 246  # of `scrub`
PIECE = 65_536  # of `rows`
SENTINEL_ROUNDS = 20_000
Grid = tuple[int, int, int]


class Launch:
    """One kernel with its arguments, which are ctypes values that may be changed between launches."""

    def __init__(self, device: Device, function: Any, arguments: Sequence[Any], grid: Grid, shared: int) -> None:
        self._cu, self._stream, self._function = device.cu, device.stream, function
        self._keep = tuple(arguments)
        self._pointers = (ctypes.c_void_p * max(1, len(arguments)))(*[ctypes.addressof(a) for a in arguments])
        self._at = ctypes.addressof(self._pointers)
        self.grid, self.shared = grid, shared

    def go(self, z: int = 0) -> None:
        """Queue it; `z`: another number of sets than the grid has."""
        x, y, most = self.grid
        shape = (x, y, z or most, THREADS, 1, 1, self.shared)
        ok(self._cu.cuLaunchKernel(self._function, *shape, self._stream, self._at, 0), "cuLaunchKernel")

    def node(self) -> Any:
        """The same as parameters of a graph's node."""
        p = self._cu.CUDA_KERNEL_NODE_PARAMS()
        p.func, p.sharedMemBytes, p.kernelParams = self._function, self.shared, self._at
        p.gridDimX, p.gridDimY, p.gridDimZ = self.grid
        p.blockDimX, p.blockDimY, p.blockDimZ = THREADS, 1, 1
        return p


class Kernels:
    def __init__(self, device: Device, image: bytes) -> None:
        self.device = device
        self.module = ok(device.cu.cuModuleLoadData(image), "cuModuleLoadData")

    def launch(self, name: str, arguments: Sequence[Any], grid: Grid, *, shared: int = 0) -> Launch:
        cu = self.device.cu
        function = ok(cu.cuModuleGetFunction(self.module, name.encode()), f"cuModuleGetFunction {name}")
        if shared:
            limit = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            ok(cu.cuFuncSetAttribute(function, limit, shared), "cuFuncSetAttribute")
        return Launch(self.device, function, arguments, grid, shared)

    def wide(self, size: int, y: int, z: int) -> Grid:
        """A grid over granules of `size` bytes, y parts and z sets: enough blocks to fill the card, not more than there is work."""
        work = -(-size // (16 * THREADS))
        return max(1, min(work, -(-16 * self.device.processors // z))), min(y, 65_535), z

    def sentinel(self, sink: int) -> Launch:
        arguments = [ctypes.c_uint64(SENTINEL_ROUNDS), ctypes.c_void_p(sink)]
        return self.launch("sentinel", arguments, (8 * self.device.processors, 1, 1))

    def wash(self, memory: int, size: int, sink: int) -> Launch:
        arguments = [ctypes.c_void_p(memory), ctypes.c_uint64(size // 16), ctypes.c_void_p(sink)]
        return self.launch("wash", arguments, (8 * self.device.processors, 1, 1))

    def scrub(self, zeros: int, sink: int) -> Launch:
        size = self.device.shared_bytes
        arguments = [ctypes.c_uint32(size // 4), ctypes.c_void_p(zeros), ctypes.c_void_p(sink)]
        return self.launch("scrub", arguments, (self.device.processors, 1, 1), shared=size)


def source() -> bytes:
    return (Path(__file__).parent / "contents.cu").read_bytes()


def compiled(text: bytes, arch: tuple[int, ...]) -> bytes:
    """A cubin of `text` for `arch`, by NVRTC. CudaError when it does not compile."""
    from cuda.bindings import nvrtc

    program = ok(nvrtc.nvrtcCreateProgram(text, b"contents.cu", 0, [], []), "nvrtcCreateProgram")
    options = [f"--gpu-architecture=sm_{arch[0]}{arch[1]}".encode()]
    done = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(done[0]) != 0:
        size = ok(nvrtc.nvrtcGetProgramLogSize(program), "nvrtcGetProgramLogSize")
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise CudaError(f"contents.cu does not compile: {log.decode(errors='replace')}")
    size = ok(nvrtc.nvrtcGetCUBINSize(program), "nvrtcGetCUBINSize")
    image = bytes(size)
    ok(nvrtc.nvrtcGetCUBIN(program, image), "nvrtcGetCUBIN")
    return image
