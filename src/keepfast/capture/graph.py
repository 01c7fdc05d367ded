"""From a captured CUDA graph to the nodes of a plan: kernels with parameters and attributes, memsets, copies, edges; graphs within it too.

Knows the driver's records of nodes (cuda-bindings), which are handed in. Must not know streams, layouts or torch. What a plan cannot
say raises `NotAPlan` with the node's kind, or with attribute and kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from keepfast.capture.cupti import Images, Outside
from keepfast.capture.refusals import NotAPlan
from keepfast.gpu.driver import ok
from keepfast.gpu.plan import Copy, Empty, Kernel, Memset, Node, Work

PROGRAMMATIC, LAUNCH_ORDER = 1, 2  # ports of a kernel that an edge may leave from
HOST, DEVICE, UNIFIED = 1, 2, 4  # CUmemorytype


class Edge(Struct, frozen=True):
    start: int
    end: int
    port: int = 0  # of `start`


class Function(Struct, frozen=True):
    """What is the same for every launch of a kernel. `layout`: (offset, size) of each parameter."""

    name: str
    image: bytes
    layout: tuple[tuple[int, int], ...]
    carveout: int


class Owners:
    """Which call each node of a running capture belongs to: those that appear while it runs."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}

    def note(self, call: int, nodes: Sequence[int]) -> int:
        """`nodes`: all that the graph has now. How many are new."""
        before = len(self.of)
        for node in nodes:
            self.of.setdefault(node, call)
        return len(self.of) - before


Part = tuple[Sequence[int], Sequence[Edge]]  # nodes and edges of a graph


def flattened(owner: Mapping[int, int], edges: Sequence[Edge], inside: Callable[[int], Part | None]) -> tuple[dict[int, int], list[Edge]]:
    """Owners and edges with every graph that was launched into this one in its place: what begins in it waits for what it waits for, and
    what waits for it waits for all that ends in it. `inside`: the graph behind a node, None for any other node."""
    owners, lines, kept = dict[int, int](), list[Edge](), list(edges)
    first, last = dict[int, list[int]](), dict[int, list[int]]()
    for node, call in owner.items():
        part = inside(node)
        if part is None:
            owners[node] = call
            continue
        within, inner = flattened(dict.fromkeys(part[0], call), part[1], inside)
        ends, starts = {e.end for e in inner}, {e.start for e in inner}
        first[node], last[node] = [n for n in within if n not in ends], [n for n in within if n not in starts]
        owners |= within
        lines += inner
        kept = kept if within else _without(node, kept)
    around = (replace(e, start=a, end=b) for e in kept for a in last.get(e.start, (e.start,)) for b in first.get(e.end, (e.end,)))
    return owners, [*lines, *around]


def _without(node: int, edges: Sequence[Edge]) -> list[Edge]:
    """These edges without a node in which nothing happens: what waits for it waits for what it waits for."""
    bridges = [replace(a, end=b.end) for a in edges if a.end == node for b in edges if b.start == node]
    return [*(e for e in edges if node not in (e.start, e.end)), *bridges]


class Decoder:
    """Reads nodes through `cu` (cuda.bindings.driver)."""

    def __init__(self, cu: Any, images: Images) -> None:
        self.cu, self.seen = cu, images
        self.images: list[bytes] = []  # of the plan, in order of use
        self._functions: dict[int, Function] = {}

    def nodes(self, owner: Mapping[int, int], edges: Sequence[Edge]) -> tuple[Node, ...]:
        """All nodes, call by call, each after those it depends on. An edge to a later call is an order that a launcher makes anyway."""
        before: dict[int, list[Edge]] = {node: [] for node in owner}
        for edge in edges:
            if owner[edge.start] > owner[edge.end]:
                raise NotAPlan(f"call {owner[edge.end]} waits for call {owner[edge.start]}, which comes after it")
            if owner[edge.start] == owner[edge.end]:
                before[edge.end].append(edge)
        order = _ordered(before, owner)
        place = {node: i for i, node in enumerate(order)}
        return tuple(Node(owner[n], self._work(n), *_edges(before[n], place)) for n in order)

    def within(self, handle: int) -> int:
        """The graph that a node launches, 0 for any other node."""
        node = self.cu.CUgraphNode(handle)
        if self._kind(node) != "graph":
            return 0
        return int(ok(self.cu.cuGraphChildGraphNodeGetGraph(node), "cuGraphChildGraphNodeGetGraph"))

    def _kind(self, node: Any) -> str:
        return _name(ok(self.cu.cuGraphNodeGetType(node), "cuGraphNodeGetType"), "CU_GRAPH_NODE_TYPE_")

    def _work(self, handle: int) -> Work:
        node = self.cu.CUgraphNode(handle)
        kind = self._kind(node)
        readers: dict[str, Callable[[Any], Work]] = {"kernel": self._kernel, "memset": self._memset, "memcpy": self._copy, "empty": _empty}
        if kind not in readers:
            raise NotAPlan(f"a {kind.replace('_', ' ')} node")
        return readers[kind](node)

    # ------------------------------------------------------------------------------------------------ memory

    def _memset(self, node: Any) -> Memset:
        p = ok(self.cu.cuGraphMemsetNodeGetParams(node), "cuGraphMemsetNodeGetParams")
        return Memset(int(p.dst), int(p.pitch), int(p.value), int(p.elementSize), int(p.width), int(p.height))

    def _copy(self, node: Any) -> Copy:
        p = ok(self.cu.cuGraphMemcpyNodeGetParams(node), "cuGraphMemcpyNodeGetParams")
        kinds = (int(p.srcMemoryType), int(p.dstMemoryType))
        if HOST in kinds:
            raise NotAPlan("a memcpy node that reads memory of the host" if kinds[0] == HOST else "a memcpy node that writes to the host")
        if not set(kinds) <= {DEVICE, UNIFIED}:
            raise NotAPlan("a memcpy node on an array")
        if int(p.Depth) > 1 or int(p.srcLOD) or int(p.dstLOD):
            raise NotAPlan("a memcpy node in three dimensions")
        target = _corner(p.dstDevice, (p.dstXInBytes, p.dstY, p.dstZ), (p.dstPitch, p.dstHeight))
        source = _corner(p.srcDevice, (p.srcXInBytes, p.srcY, p.srcZ), (p.srcPitch, p.srcHeight))
        return Copy(target, int(p.dstPitch), source, int(p.srcPitch), int(p.WidthInBytes), max(int(p.Height), 1))

    # ------------------------------------------------------------------------------------------------ kernels

    def _kernel(self, node: Any) -> Kernel:
        p = ok(self.cu.cuGraphKernelNodeGetParams(node), "cuGraphKernelNodeGetParams")
        found = self._function(p)
        self._refuse_attributes(node, found.name)
        parameters = _parameters(p, found.layout)
        if outside := _reaches(parameters, self.seen.outside):
            at = f" ({outside.where})" if outside.where else ""
            raise NotAPlan(f"kernel `{found.name}` uses memory that {outside.how} gave, outside torch's allocator{at}")
        return Kernel(
            image=self._image(found.image),
            name=found.name,
            grid=(int(p.gridDimX), int(p.gridDimY), int(p.gridDimZ)),
            block=(int(p.blockDimX), int(p.blockDimY), int(p.blockDimZ)),
            shared=int(p.sharedMemBytes),
            parameters=parameters,
            cluster=self._dimensions(node, "CLUSTER_DIMENSION", "clusterDim"),
            cooperative=bool(self._number(node, "COOPERATIVE", "cooperative")),
            carveout=_share(self._number(node, "PREFERRED_SHARED_MEMORY_CARVEOUT", "sharedMemCarveout"), found.carveout),
            scheduling=self._number(node, "CLUSTER_SCHEDULING_POLICY_PREFERENCE", "clusterSchedulingPolicyPreference"),
        )

    def _image(self, image: bytes) -> int:
        if image not in self.images:
            self.images.append(image)
        return self.images.index(image)

    def _function(self, p: Any) -> Function:
        function = p.func if int(p.func) else ok(self.cu.cuKernelGetFunction(p.kern), "cuKernelGetFunction")
        known = self._functions.get(int(function))
        if known is None:
            known = self._functions[int(function)] = self._read_function(function)
        return known

    def _read_function(self, function: Any) -> Function:
        cu = self.cu
        name = bytes(ok(cu.cuFuncGetName(function), "cuFuncGetName"))
        code, module = cu.cuFuncGetModule(function)
        self.seen.name_libraries(self._module_of)
        image = self.seen.of(name, int(module) if int(code) == 0 else 0)
        if image is None:
            raise NotAPlan(f"kernel `{name.decode()}`, whose image was not seen being loaded")
        code, carveout = cu.cuFuncGetAttribute(cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function)
        return Function(name.decode(), image, self._layout(function), int(carveout) if int(code) == 0 else -1)

    def _module_of(self, library: int) -> int:
        code, module = self.cu.cuLibraryGetModule(self.cu.CUlibrary(library))
        return int(module) if int(code) == 0 else 0

    def _layout(self, function: Any) -> tuple[tuple[int, int], ...]:
        found: list[tuple[int, int]] = []
        while True:
            code, offset, size = self.cu.cuFuncGetParamInfo(function, len(found))
            if int(code) != 0:
                return tuple(found)
            found.append((int(offset), int(size)))

    # ------------------------------------------------------------------------------------------------ attributes

    def _refuse_attributes(self, node: Any, kernel: str) -> None:
        """Refuse what a plan has no word for."""
        window = self._attribute(node, "ACCESS_POLICY_WINDOW")
        cluster = self._dimensions(node, "CLUSTER_DIMENSION", "clusterDim")
        preferred = self._dimensions(node, "PREFERRED_CLUSTER_DIMENSION", "preferredClusterDim")
        updatable = self._attribute(node, "DEVICE_UPDATABLE_KERNEL_NODE")
        unusual = (
            (window is not None and int(window.accessPolicyWindow.num_bytes) > 0, "an access policy window"),
            (self._number(node, "PRIORITY", "priority") != 0, "a priority"),
            (self._number(node, "MEM_SYNC_DOMAIN", "memSyncDomain") != 0, "a memory sync domain"),
            (any(preferred) and preferred != cluster, "a preferred cluster dimension"),
            (updatable is not None and bool(updatable.deviceUpdatableKernelNode.deviceUpdatable), "updates from the device"),
        )
        if what := next((name for present, name in unusual if present), ""):
            raise NotAPlan(f"kernel `{kernel}`, launched with {what}")

    def _attribute(self, node: Any, name: str) -> Any:
        """The value of a launch attribute; None where this driver does not know it for graph nodes."""
        ids = getattr(self.cu, "CUkernelNodeAttrID", None) or self.cu.CUlaunchAttributeID
        which = getattr(ids, f"CU_LAUNCH_ATTRIBUTE_{name}", None)
        if which is None:
            return None
        code, value = self.cu.cuGraphKernelNodeGetAttribute(node, which)
        return value if int(code) == 0 else None

    def _number(self, node: Any, name: str, field: str) -> int:
        value = self._attribute(node, name)
        return 0 if value is None else int(getattr(value, field))

    def _dimensions(self, node: Any, name: str, field: str) -> tuple[int, int, int]:
        value = self._attribute(node, name)
        dim = None if value is None else getattr(value, field)
        return (0, 0, 0) if dim is None else (int(dim.x), int(dim.y), int(dim.z))


def _ordered(before: Mapping[int, Sequence[Edge]], owner: Mapping[int, int]) -> list[int]:
    """Nodes call by call, as they appeared; in an order of their edges where they were listed in another."""
    listed = sorted(before, key=owner.__getitem__)
    place = {node: i for i, node in enumerate(listed)}
    if all(place[edge.start] < place[edge.end] for edges in before.values() for edge in edges):
        return listed
    sorter = TopologicalSorter({node: [edge.start for edge in before[node]] for node in listed})
    return sorted(sorter.static_order(), key=owner.__getitem__)


def _edges(edges: Sequence[Edge], place: Mapping[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(after, early) of a node."""
    if any(edge.port not in (0, PROGRAMMATIC) for edge in edges):
        raise NotAPlan("an edge that waits for the start of a kernel only (launch completion event)")
    after = sorted({place[edge.start] for edge in edges})
    return tuple(after), tuple(sorted({place[edge.start] for edge in edges if edge.port == PROGRAMMATIC}))


def _parameters(p: Any, layout: Sequence[tuple[int, int]]) -> tuple[tuple[int, bytes], ...]:
    if int(p.kernelParams):
        table = ctypes.cast(int(p.kernelParams), ctypes.POINTER(ctypes.c_void_p))
        return tuple((offset, ctypes.string_at(int(table[i] or 0), size)) for i, (offset, size) in enumerate(layout))
    return ((-1, _opaque(int(p.extra))),) if int(p.extra) else ()


def _opaque(extra: int) -> bytes:
    """The parameter buffer behind `extra`: pairs of key and pointer in any order, ended by 0. Key 1: the buffer, 2: its size."""
    words, found = ctypes.cast(extra, ctypes.POINTER(ctypes.c_void_p)), dict[int, int]()
    for i in range(0, 4, 2):
        found[int(words[i] or 0)] = int(words[i + 1] or 0)
    if set(found) != {1, 2}:
        raise NotAPlan("a kernel whose parameters are described in a way that is not known")
    size = ctypes.cast(found[2], ctypes.POINTER(ctypes.c_size_t))[0]
    return ctypes.string_at(found[1], size)


def _reaches(parameters: Sequence[tuple[int, bytes]], outside: Sequence[Outside]) -> Outside | None:
    """Memory taken from the driver directly that a parameter points into."""
    for memory in outside:
        for _, data in parameters:
            words = memoryview(data[: len(data) // 8 * 8]).cast("Q")
            if any(memory.start <= word < memory.end for word in words):
                return memory
    return None


def _share(of_launch: int, of_function: int) -> int:
    """Preferred shared memory in per cent. 0 is what an attribute reads as that nobody set."""
    return next((share for share in (of_launch, of_function) if 0 < share <= 100), -1)


def _corner(base: Any, at: tuple[Any, Any, Any], sizes: tuple[Any, Any]) -> int:
    """Address of the first byte of a copy."""
    (x, y, z), (pitch, height) = at, sizes
    return int(base) + int(x) + int(pitch) * (int(y) + int(height) * int(z))


def _empty(_node: Any) -> Empty:
    return Empty()


def _name(value: Any, prefix: str) -> str:
    """The name of a driver's constant, in small letters."""
    return str(getattr(value, "name", value)).removeprefix(prefix).lower()
