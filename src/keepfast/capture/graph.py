"""From a captured CUDA graph to a plan: nodes, parameters, attributes, edges.

What a plan cannot say raises `NotAPlan` with the node's kind.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from keepfast.capture.cupti import Images
from keepfast.launcher.driver import driver, ok
from keepfast.launcher.plan import VERSION, Kernel, Memset, Node, Plan, Segment


class NotAPlan(Exception):
    """What in the captured work cannot be replayed, as a sentence."""


class Recorder:
    """Captures calls on a stream, one after the other, and knows which nodes belong to which."""

    def __init__(self, stream: int, images: Images) -> None:
        self.cu, self.images = driver(), images
        self.stream = self.cu.CUstream(stream)

    def record(self, calls: list[Callable[[], object]], segments: tuple[Segment, ...]) -> Plan:
        """One graph of all calls; each call's nodes are those that appeared while it ran."""
        cu = self.cu
        ok(cu.cuStreamBeginCapture(self.stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture")
        owner: dict[int, int] = {}
        order: list[Any] = []
        for number, call in enumerate(calls):
            call()
            for node in self._nodes(self._capturing()):
                if int(node) not in owner:
                    owner[int(node)] = number
                    order.append(node)
        graph = ok(cu.cuStreamEndCapture(self.stream), "cuStreamEndCapture")
        return self._plan(graph, order, owner, segments, len(calls))

    def _capturing(self) -> Any:
        return ok(self.cu.cuStreamGetCaptureInfo(self.stream), "cuStreamGetCaptureInfo")[2]

    def _nodes(self, graph: Any) -> list[Any]:
        _, count = ok(self.cu.cuGraphGetNodes(graph), "cuGraphGetNodes")
        nodes, _ = ok(self.cu.cuGraphGetNodes(graph, count), "cuGraphGetNodes")
        return list(nodes)[:count]

    def _plan(self, graph: Any, order: list[Any], owner: dict[int, int], segments: tuple[Segment, ...], calls: int) -> Plan:
        place = {int(node): i for i, node in enumerate(order)}
        before: dict[int, list[int]] = {i: [] for i in range(len(order))}
        for first, second in self._edges(graph):
            if owner[int(first)] == owner[int(second)]:
                before[place[int(second)]].append(place[int(first)])
        images: list[bytes] = []
        nodes = tuple(Node(owner[int(n)], self._work(n, images), tuple(sorted(before[i]))) for i, n in enumerate(order))
        return Plan(VERSION, tuple(images), nodes, segments, calls)

    def _edges(self, graph: Any) -> list[tuple[Any, Any]]:
        count = ok(self.cu.cuGraphGetEdges(graph), "cuGraphGetEdges")[-1]
        found = ok(self.cu.cuGraphGetEdges(graph, count), "cuGraphGetEdges")
        return list(zip(found[0], found[1], strict=True))[:count]

    def _work(self, node: Any, images: list[bytes]) -> Kernel | Memset:
        kinds = self.cu.CUgraphNodeType
        kind = ok(self.cu.cuGraphNodeGetType(node), "cuGraphNodeGetType")
        if kind == kinds.CU_GRAPH_NODE_TYPE_KERNEL:
            return self._kernel(node, images)
        if kind == kinds.CU_GRAPH_NODE_TYPE_MEMSET:
            p = ok(self.cu.cuGraphMemsetNodeGetParams(node), "cuGraphMemsetNodeGetParams")
            return Memset(int(p.dst), int(p.pitch), int(p.value), int(p.elementSize), int(p.width), int(p.height))
        raise NotAPlan(f"a {kind.name.removeprefix('CU_GRAPH_NODE_TYPE_').lower()} node")

    def _kernel(self, node: Any, images: list[bytes]) -> Kernel:
        cu = self.cu
        p = ok(cu.cuGraphKernelNodeGetParams(node), "cuGraphKernelNodeGetParams")
        function = p.func if int(p.func) else ok(cu.cuKernelGetFunction(p.kern), "cuKernelGetFunction")
        name = ok(cu.cuFuncGetName(function), "cuFuncGetName")
        image = self.images.of(name)
        if image is None:
            raise NotAPlan(f"the image of {name.decode()} was not seen being loaded")
        if image not in images:
            images.append(image)
        return Kernel(
            image=images.index(image),
            name=name.decode(),
            grid=(int(p.gridDimX), int(p.gridDimY), int(p.gridDimZ)),
            block=(int(p.blockDimX), int(p.blockDimY), int(p.blockDimZ)),
            shared=int(p.sharedMemBytes),
            parameters=self._parameters(function, p),
            cluster=self._cluster(node),
            cooperative=bool(self._attribute(node, "COOPERATIVE").cooperative),
        )

    def _parameters(self, function: Any, p: Any) -> tuple[tuple[int, bytes], ...]:
        if int(p.kernelParams):
            return tuple((offset, ctypes.string_at(pointer, size)) for offset, size, pointer in self._each(function, int(p.kernelParams)))
        if int(p.extra):
            return ((-1, _opaque(int(p.extra))),)
        return ()

    def _each(self, function: Any, pointers: int) -> list[tuple[int, int, int]]:
        """(offset, size, address of the value) of every parameter."""
        table = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))
        found: list[tuple[int, int, int]] = []
        while True:
            code, offset, size = self.cu.cuFuncGetParamInfo(function, len(found))
            if int(code) != 0:
                return found
            found.append((int(offset), int(size), int(table[len(found)] or 0)))

    def _attribute(self, node: Any, name: str) -> Any:
        which = getattr(self.cu.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
        return ok(self.cu.cuGraphKernelNodeGetAttribute(node, which), "cuGraphKernelNodeGetAttribute")

    def _cluster(self, node: Any) -> tuple[int, int, int]:
        dim = self._attribute(node, "CLUSTER_DIMENSION").clusterDim
        return int(dim.x), int(dim.y), int(dim.z)


def _opaque(extra: int) -> bytes:
    """The parameter buffer behind `extra`: pairs of key and pointer in any order, ended by 0. Key 1: the buffer, 2: its size."""
    words, found = ctypes.cast(extra, ctypes.POINTER(ctypes.c_void_p)), dict[int, int]()
    for i in range(0, 4, 2):
        found[int(words[i] or 0)] = int(words[i + 1] or 0)
    if set(found) != {1, 2}:
        raise NotAPlan("a kernel whose parameters are described in a way that is not known")
    size = ctypes.cast(found[2], ctypes.POINTER(ctypes.c_size_t))[0]
    return ctypes.string_at(found[1], size)
