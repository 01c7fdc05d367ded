"""The GPU of a capture worker: memory, one stream, and stream capture into the nodes of a plan. Thin: what is decided is elsewhere.

Knows the driver API and, where torch was loaded, how torch is told of a stream. Must not know layouts, entries or messages.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from types import ModuleType

from keepfast.capture.cupti import Images, Subscription
from keepfast.capture.graph import Decoder, Edge, Owners, Part, flattened
from keepfast.capture.refusals import Refused
from keepfast.gpu.driver import CudaError, Device, ok
from keepfast.gpu.plan import Node

ACTIVE, INVALIDATED = 1, 2  # CUstreamCaptureStatus
UNJOINED = 904
BLOCKING = 0  # a stream that the legacy stream waits for: work there during a capture is an error, not overlooked
JOIN = "let the capture stream wait for an event of that stream, or launch on torch.cuda.current_stream()"


class _Edge(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = (("from_port", ctypes.c_uint8), ("to_port", ctypes.c_uint8), ("type", ctypes.c_uint8), ("reserved", ctypes.c_uint8 * 5))


class Raw:
    """Entry points of libcuda whose Python bindings change from version to version."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self._lib = ctypes.CDLL(library)

    def capturing(self, stream: int) -> bool:
        """Whether work on a stream becomes part of a graph. The legacy stream, while another is captured, cannot."""
        status = ctypes.c_int()
        return int(self._lib.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))) == 0 and status.value == ACTIVE

    def capture(self, stream: int) -> tuple[int, int]:
        """(status, graph) of the capture that is running."""
        status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        places = (ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph))
        self._check("cuStreamGetCaptureInfo", self._lib.cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *places, None, None))
        return status.value, int(graph.value or 0)

    def nodes(self, graph: int) -> list[int]:
        count = ctypes.c_size_t()
        self._check("cuGraphGetNodes", self._lib.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(count)))
        nodes = (ctypes.c_uint64 * max(count.value, 1))()
        if count.value:
            self._check("cuGraphGetNodes", self._lib.cuGraphGetNodes(ctypes.c_void_p(graph), nodes, ctypes.byref(count)))
        return list(nodes[: count.value])

    def edges(self, graph: int) -> list[Edge]:
        count, at = ctypes.c_size_t(), ctypes.c_void_p(graph)
        self._check("cuGraphGetEdges", self._lib.cuGraphGetEdges_v2(at, None, None, None, ctypes.byref(count)))
        size = max(count.value, 1)
        starts, ends, data = (ctypes.c_uint64 * size)(), (ctypes.c_uint64 * size)(), (_Edge * size)()
        if count.value:
            self._check("cuGraphGetEdges", self._lib.cuGraphGetEdges_v2(at, starts, ends, data, ctypes.byref(count)))
        return [Edge(starts[i], ends[i], data[i].from_port) for i in range(count.value)]

    def _check(self, what: str, code: int) -> None:
        if code:
            raise CudaError(f"{what}: error {code}")


class Cuda:
    """One device, and the stream that everything of a candidate runs on."""

    def __init__(self, index: int, images: Images, watch: Subscription) -> None:
        self.device, self.index = Device(index), index
        self.images, self.watch, self.raw = images, watch, Raw()
        self.cu = self.device.cu
        self._stream = ok(self.cu.cuStreamCreate(BLOCKING), "cuStreamCreate")
        self.stream = int(self._stream)
        self.owners = Owners()
        images.captures = self.raw.capturing

    def write(self, address: int, data: bytes) -> None:
        self.device.write(address, data)

    def copy(self, target: int, source: int, size: int) -> None:
        ok(self.cu.cuMemcpyDtoDAsync(target, source, size, self._stream), "cuMemcpyDtoDAsync")

    def clear(self, address: int, size: int) -> None:
        """Waited for, because what is written next is written on another stream."""
        ok(self.cu.cuMemsetD8Async(address, 0, size, self._stream), "cuMemsetD8Async")
        self.synchronise()

    def read(self, address: int, size: int) -> bytes:
        return self.device.read(address, size)

    def synchronise(self) -> None:
        """Wait for all streams: a candidate may have made some of its own."""
        ok(self.cu.cuCtxSynchronize(), "cuCtxSynchronize")

    def touch(self) -> None:
        """Make the context do something, so that what is made at first use is made now."""
        torch = _torch()
        if torch is not None:
            torch.zeros(1, device=f"cuda:{self.index}").add_(1)
        self.synchronise()

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        """Calls inside run on the stream. No graph of gradients is recorded: it would keep every intermediate alive."""
        torch = _torch()
        if torch is None:
            yield
            return
        stream = torch.cuda.ExternalStream(self.stream, device=f"cuda:{self.index}")
        with torch.cuda.device(self.index), torch.cuda.stream(stream), torch.no_grad():
            yield

    def begin(self) -> None:
        self.owners = Owners()
        self.images.astray.clear()
        self.watch.launches(True)
        mode = self.cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        ok(self.cu.cuStreamBeginCapture(self._stream, mode), "cuStreamBeginCapture")

    def broken(self) -> bool:
        return self.raw.capture(self.stream)[0] != ACTIVE

    def note(self, call: int) -> int:
        """A call has been captured: how many nodes it added. Refused when it broke the capture or launched elsewhere."""
        if self.images.astray:
            raise Refused("graph", f"{self.images.astray[0]}: work on another stream is not joined; {JOIN}")
        status, graph = self.raw.capture(self.stream)
        if status == INVALIDATED:
            raise Refused("graph", "it did something that ended the capture (synchronised, allocated, or used the default stream)")
        if status != ACTIVE:
            raise Refused("graph", "it ended the capture of the stream that it was given")
        return self.owners.note(call, self.raw.nodes(graph))

    def end(self) -> tuple[tuple[Node, ...], tuple[bytes, ...]]:
        """Nodes of the plan and the images they are in. Refused when work was left on another stream, NotAPlan for what cannot be said."""
        code, graph = self.cu.cuStreamEndCapture(self._stream)
        self.watch.launches(False)
        if int(code) == UNJOINED:
            raise Refused("graph", f"work on another stream is not joined; {JOIN}")
        if int(code) != 0:
            raise Refused("graph", f"the capture failed: {getattr(code, 'name', code)}")
        decoder = Decoder(self.cu, self.images)
        owners, edges = flattened(self.owners.of, self.raw.edges(int(graph)), lambda node: self._inside(decoder.within(node)))
        nodes = decoder.nodes(owners, edges)
        ok(self.cu.cuGraphDestroy(graph), "cuGraphDestroy")
        return nodes, tuple(decoder.images)

    def _inside(self, graph: int) -> Part | None:
        return (self.raw.nodes(graph), self.raw.edges(graph)) if graph else None

    def version(self) -> str:
        number = int(ok(self.cu.cuDriverGetVersion(), "cuDriverGetVersion"))
        return f"{number // 1000}.{number % 1000 // 10}"


def take_allocator(library: str) -> None:
    """Let torch allocate from the arena: before anything of torch.cuda is used."""
    torch = _torch()
    if torch is not None:
        memory = torch.cuda.memory
        memory.change_current_allocator(memory.CUDAPluggableAllocator(library, "arena_alloc", "arena_free"))


def _torch() -> ModuleType | None:
    return sys.modules.get("torch")
