"""A card and its driver, made of host memory: `cu` of keepfast.gpu.driver.Device in tests.

Addresses are real: physical memory is a memfd, mapping it is mmap at the address asked for, access is mprotect. Kernels are C++ compiled
for the host (emulate.h), so contents.cu itself is run. Everything queued is done at once; the card's time is counted, not measured.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import keepfast.launcher

HERE = Path(__file__).parent
PLAN_KERNELS = HERE / "plan_kernels.cu"
CONTENTS = Path(keepfast.launcher.__file__).parent / "contents.cu"
NAMES = {
    1: "INVALID_VALUE",
    2: "OUT_OF_MEMORY",
    200: "INVALID_IMAGE",
    500: "NOT_FOUND",
    700: "ILLEGAL_ADDRESS",
    720: "COOPERATIVE_LAUNCH_TOO_LARGE",
}
NAMES |= {710: "ASSERT", 719: "LAUNCH_FAILED"}
OUR_KERNELS = "give verify restore poison untouched keep differ rows wash fill copy scrub sentinel nothing"
PLAN_NAMES = "scale scale_apart scale_wrong scale_half scale_and_spoil scale_past scale_all add_to scale_once peek noop"
PLAN_NAMES += " leaf_first leaf_watched scale_ahead scale_in_pairs scale_for_5000 scale_for_5000_down scale_for_5000_float"
PLAN_NAMES += " scale_for_5000_chained scale_for_long scale_by_last scale_generation scale_ping_pong scale_workspace"


@functools.cache
def _library(source: Path, kernels: str) -> bytes:
    """The kernels of a CUDA source as a shared object for the host."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is needed to run kernels on the host")
    listed = "".join(f" X({name})" for name in kernels.split())
    with tempfile.TemporaryDirectory() as folder:
        text, made = Path(folder) / "emulated.cpp", Path(folder) / "emulated.so"
        text.write_text(f'#include "emulate.h"\n#include "{source}"\n#define KERNELS(X){listed}\nEMULATE\n')
        options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fnon-call-exceptions", f"-I{HERE}"]
        subprocess.run(["g++", *options, str(text), "-o", str(made)], check=True)
        return made.read_bytes()


def our_image() -> bytes:
    return _library(CONTENTS, OUR_KERNELS)


def plan_image() -> bytes:
    return _library(PLAN_KERNELS, PLAN_NAMES)


class Code(int):
    @property
    def name(self) -> str:
        return "CUDA_" + ("SUCCESS" if self == 0 else f"ERROR_{NAMES.get(int(self), int(self))}")


class Names:
    """An enumeration: every name is itself."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class Parameters(SimpleNamespace):
    def __init__(self) -> None:
        super().__init__(location=SimpleNamespace(), clusterDim=SimpleNamespace(), kernelParams=0, extra=0)


class Module:
    def __init__(self, image: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:  # a name of its own: the loader takes one name for one library
            file.write(image)
            file.flush()
            self.lib = ctypes.CDLL(file.name)

    def function(self, name: bytes) -> Function | None:
        out = (ctypes.c_uint64 * 128)()
        count = self.lib.emulate_parameters(name, out)
        return None if count < 0 else Function(self, name.decode(), [(out[2 * i], out[2 * i + 1]) for i in range(count)])


class Function:
    def __init__(self, module: Module, name: str, parameters: list[tuple[int, int]]) -> None:
        self.module, self.name, self.parameters = module, name, parameters
        self.attributes: dict[str, int] = {}

    def run(self, pointers: int, grid: tuple[int, int, int]) -> int:
        return int(self.module.lib.emulate_run(self.name.encode(), ctypes.c_void_p(pointers), *grid))

    @property
    def clock(self) -> ctypes.c_uint64:
        """The card's, in ns, as its kernels see it."""
        return ctypes.c_uint64.in_dll(self.module.lib, "emulate_ns")


class Node:
    def __init__(self, kind: str, after: list[Node], what: Any) -> None:
        self.kind, self.after, self.what = kind, list(after), what
        self.early: list[Node] = []
        self.attributes: dict[str, Any] = {}


class Graph:
    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def before(self, node: Node) -> set[Node]:
        """Everything that must have ended, or been started early, before a node runs."""
        found: set[Node] = set()
        todo = [*node.after, *node.early]
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += [*one.after, *one.early]
        return found


libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
FIXED, NO_REPLACE, NO_RESERVE = 0x10, 0x100000, 0x4000
BOTH = mmap.PROT_READ | mmap.PROT_WRITE


def _mmap(address: int, size: int, protection: int, flags: int, fd: int = -1) -> int | None:
    found = libc.mmap(address, size, protection, flags, fd, 0)
    return None if found in (None, ctypes.c_void_p(-1).value) else int(found)


class Fake:
    """The driver's module. `calls`: what was asked, in order, by name. `costs`: microseconds of kernels by name."""

    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1

    def __init__(self, *, total: int = 8 << 30, l2: int = 1 << 16, processors: int = 2) -> None:
        self.total, self.sizes = total, {"L2_CACHE_SIZE": l2, "MULTIPROCESSOR_COUNT": processors}
        self.calls: list[str] = []
        self.log: list[tuple[Any, ...]] = []  # launches, accesses and records in order
        self.costs: dict[str, float] = {}
        self.refusals: dict[str, Callable[..., int]] = {}  # by name of the call: the code it answers
        self.now_us = 0.0
        self.sticky = 0
        self.host_factor = 1.0
        self.physical: dict[int, int] = {}  # fd -> bytes
        self.reserved: dict[int, int] = {}
        self.executables = 0
        for name in ("CUdevice_attribute", "CUfunction_attribute", "CUmemLocationType", "CUmemAllocationType", "CUmemAccess_flags"):
            setattr(self, name, Names())
        for name in ("CUmemAllocationHandleType", "CUmemorytype", "CUkernelNodeAttrID"):
            setattr(self, name, Names())
        self.CUgraphDependencyType = SimpleNamespace(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC=1)
        for name in ("CUmemAccessDesc", "CUmemAllocationProp", "CUDA_KERNEL_NODE_PARAMS", "CUDA_MEMSET_NODE_PARAMS", "CUDA_MEMCPY3D"):
            setattr(self, name, Parameters)
        self.CUkernelNodeAttrValue = self.CUgraphEdgeData = Parameters

    def clock(self) -> float:
        return self.now_us * 1e-6 * self.host_factor

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        return self._watched(name, found) if name.startswith("cu") else found

    def _watched(self, name: str, work: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        """Counts calls, answers refusals, and after a fault nothing but the fault."""

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            code = self.sticky or (self.refusals[name](*arguments) if name in self.refusals else 0)
            if code:
                return (Code(code), None, None)
            found = work(*arguments)
            if isinstance(found, Code):
                return (found, None, None)
            return (Code(0), *(found if isinstance(found, tuple) else () if found is None else (found,)))

        return call

    # ---------------------------------------------------------------------------------------- device

    def cuInit(self, flags: int) -> None: ...

    def cuDeviceGet(self, index: int) -> int:
        return index

    def cuDevicePrimaryCtxRetain(self, device: int) -> str:
        return "context"

    def cuCtxSetCurrent(self, context: str) -> None: ...

    def cuDeviceGetAttribute(self, name: str, device: int) -> int:
        known = {"COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 4096} | self.sizes
        return known[name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDeviceGetName(self, size: int, device: int) -> bytes:
        return b"made of host memory\0\0"

    def cuStreamCreate(self, flags: int) -> str:
        return "stream"

    def cuStreamSynchronize(self, stream: str) -> None:
        self.log.append(("synchronise",))

    def cuMemGetInfo(self) -> tuple[int, int]:
        return self.total - sum(self.physical.values()), self.total

    def cuCtxResetPersistingL2Cache(self) -> None: ...

    # ---------------------------------------------------------------------------------------- events

    def cuEventCreate(self, flags: int) -> SimpleNamespace:
        return SimpleNamespace(at=None)

    def cuEventDestroy(self, event: SimpleNamespace) -> None:
        event.at = None

    def cuEventRecord(self, event: SimpleNamespace, stream: str) -> None:
        event.at = self.now_us
        self.log.append(("record", event))

    def cuEventElapsedTime(self, first: SimpleNamespace, last: SimpleNamespace) -> float:
        return (last.at - first.at) / 1e3

    # ---------------------------------------------------------------------------------------- memory

    def cuMemAddressReserve(self, size: int, alignment: int, address: int, flags: int) -> Any:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        found = _mmap(address, size, 0, flags | NO_REPLACE) if address else None
        if found is None:
            whole = _mmap(0, size + alignment, 0, flags)
            if whole is None:
                return Code(2)
            found = -(-whole // alignment) * alignment
        self.reserved[found] = size
        return found

    def cuMemAddressFree(self, address: int, size: int) -> Any:
        if self.reserved.pop(address, None) != size:
            return Code(1)
        libc.munmap(address, size)
        return None

    def cuMemCreate(self, size: int, prop: Any, flags: int) -> Any:
        if size % (2 * (1 << 20)) or size <= 0:
            return Code(1)
        if size > self.cuMemGetInfo()[1]:
            return Code(2)
        fd = os.memfd_create("physical", os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        self.physical[fd] = size
        return SimpleNamespace(fd=fd, size=size, exportable=hasattr(prop, "requestedHandleTypes"))

    def cuMemRelease(self, memory: SimpleNamespace) -> None:
        self.physical.pop(memory.fd, None)
        os.close(memory.fd)

    def cuMemMap(self, address: int, size: int, offset: int, memory: SimpleNamespace, flags: int) -> Any:
        inside = any(base <= address and address + size <= base + length for base, length in self.reserved.items())
        if offset or size != memory.size or not inside:
            return Code(1)
        _mmap(address, size, 0, mmap.MAP_SHARED | FIXED, memory.fd)
        return None

    def cuMemUnmap(self, address: int, size: int) -> None:
        _mmap(address, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE | FIXED)

    def cuMemSetAccess(self, address: int, size: int, wanted: list[Any], count: int) -> None:
        allowed = wanted[0].flags.endswith("READWRITE")
        self.log.append(("access", address, size, allowed))
        libc.mprotect(address, size, BOTH if allowed else 0)

    def cuMemExportToShareableHandle(self, memory: SimpleNamespace, kind: str, flags: int) -> Any:
        return os.dup(memory.fd) if memory.exportable else Code(1)

    def cuMemImportFromShareableHandle(self, fd: int, kind: str) -> SimpleNamespace:
        mine = os.dup(fd)
        return SimpleNamespace(fd=mine, size=os.fstat(mine).st_size, exportable=False)

    def cuMemcpyDtoH(self, host: int, address: int, size: int) -> None:
        self.now_us += 5
        ctypes.memmove(host, address, size)

    def cuMemcpyHtoDAsync(self, address: int, host: int, size: int, stream: str) -> None:
        ctypes.memmove(address, host, size)

    def cuMemsetD32Async(self, address: int, word: int, words: int, stream: str) -> None:
        self.log.append(("fill", address, 4 * words, word))
        self.now_us += 2
        block = word.to_bytes(4, "little") * (1 << 16)
        for at in range(0, 4 * words, len(block)):
            ctypes.memmove(address + at, block, min(len(block), 4 * words - at))

    # ---------------------------------------------------------------------------------------- kernels

    def cuModuleLoadData(self, image: bytes) -> Any:
        return Module(image) if image[:4] == b"\x7fELF" else Code(200)

    def cuModuleUnload(self, module: Module) -> None: ...

    def cuModuleGetFunction(self, module: Module, name: bytes) -> Any:
        return module.function(name) or Code(500)

    def cuFuncGetParamInfo(self, function: Function, index: int) -> Any:
        return function.parameters[index] if index < len(function.parameters) else Code(1)

    def cuFuncSetAttribute(self, function: Function, name: str, value: int) -> None:
        function.attributes[name] = value

    def cuFuncGetAttribute(self, name: str, function: Function) -> int:
        known = {"NUM_REGS": 40, "LOCAL_SIZE_BYTES": 16, "SHARED_SIZE_BYTES": 1024}
        return known[name.removeprefix("CU_FUNC_ATTRIBUTE_")]

    def cuLaunchKernel(self, function: Function, *rest: Any) -> Any:
        grid, pointers = rest[:3], rest[8]
        self.log.append(("launch", function.name, grid))
        self.now_us += self.costs.get(function.name, 1.0)
        return self._ran(function.run(pointers, grid))

    def _ran(self, code: int) -> Any:
        self.sticky = code if code in (700, 710, 719) else self.sticky
        return None  # a fault is said by the next call

    # ---------------------------------------------------------------------------------------- graphs

    def cuGraphCreate(self, flags: int) -> Graph:
        return Graph()

    def cuGraphDestroy(self, graph: Graph) -> None: ...

    def _add(self, kind: str, graph: Graph, after: list[Node], count: int, what: Any) -> Any:
        if len(after) != count or len(set(after)) != count or any(n not in graph.nodes for n in after):
            return Code(1)
        graph.nodes.append(Node(kind, after, what))
        return graph.nodes[-1]

    def cuGraphAddEmptyNode(self, graph: Graph, after: list[Node], count: int) -> Any:
        return self._add("empty", graph, after, count, None)

    def cuGraphAddEventRecordNode(self, graph: Graph, after: list[Node], count: int, event: Any) -> Any:
        return self._add("event", graph, after, count, event)

    def cuGraphAddMemsetNode(self, graph: Graph, after: list[Node], count: int, p: Any, context: str) -> Any:
        return self._add("memset", graph, after, count, SimpleNamespace(**vars(p)))

    def cuGraphAddMemcpyNode(self, graph: Graph, after: list[Node], count: int, p: Any, context: str) -> Any:
        return self._add("copy", graph, after, count, SimpleNamespace(**vars(p)))

    def cuGraphAddKernelNode(self, graph: Graph, after: list[Node], count: int, p: Any) -> Any:
        return self._add("kernel", graph, after, count, SimpleNamespace(**vars(p)))

    def cuGraphKernelNodeSetAttribute(self, node: Node, name: str, value: Any) -> None:
        node.attributes[name.removeprefix("CU_LAUNCH_ATTRIBUTE_")] = value

    def cuGraphAddDependencies(self, graph: Graph, sources: list[Node], targets: list[Node], edges: list[Any], count: int) -> Any:
        for source, target, edge in zip(sources, targets, edges, strict=True):
            if (edge.from_port, edge.type) != (1, 1) or {source.kind, target.kind} != {"kernel"}:
                return Code(1)
            target.early.append(source)
        return None

    def cuGraphInstantiate(self, graph: Graph, flags: int) -> Graph:
        self.executables += 1
        self.log.append(("instantiate", graph))
        return graph

    def cuGraphUpload(self, graph: Graph, stream: str) -> None: ...

    def cuGraphExecDestroy(self, graph: Graph) -> None:
        self.executables -= 1

    def cuGraphLaunch(self, graph: Graph, stream: str) -> None:
        self.log.append(("graph", graph))
        for node in graph.nodes:
            if not self.sticky:
                getattr(self, f"_{node.kind}")(node.what)

    def _empty(self, what: Any) -> None: ...

    def _event(self, event: Any) -> None:
        self.now_us += 0.5
        event.at = self.now_us

    def _memset(self, p: Any) -> None:
        self.now_us += 1
        for row in range(p.height):
            ctypes.memmove(p.dst + row * p.pitch, p.value.to_bytes(p.elementSize, "little") * p.width, p.elementSize * p.width)

    def _copy(self, p: Any) -> None:
        self.now_us += 1
        for row in range(p.Height):
            ctypes.memmove(p.dstDevice + row * p.dstPitch, p.srcDevice + row * p.srcPitch, p.WidthInBytes)

    def _kernel(self, p: Any) -> None:
        self.now_us += self.costs.get(p.func.name, 2.0)
        clock = p.func.clock
        clock.value = int(1e3 * self.now_us)
        pointers = p.kernelParams
        if p.extra:
            words = ctypes.cast(p.extra, ctypes.POINTER(ctypes.c_void_p))
            places = (ctypes.c_void_p * 64)(*[words[1] + offset for offset, _ in p.func.parameters])
            pointers = ctypes.addressof(places)
        before = clock.value
        self._ran(p.func.run(pointers, (p.gridDimX, p.gridDimY, p.gridDimZ)))
        self.now_us += (clock.value - before) / 1e3
