"""A plan as executable graphs in this process: same addresses, same images, same bytes, our own order of calls.

Must not know memory, contents or clocks.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from keepfast.gpu.driver import CudaError, Device, ok
from keepfast.gpu.messages import KernelFacts
from keepfast.gpu.plan import Copy, Kernel, Memset, Node, Plan, Work
from keepfast.launcher.faults import Failed, refused

JOIN = 64  # edges between two calls; more go through an empty node
PORTABLE_CLUSTER = 8  # blocks

Key = tuple[int, str, int, int]  # image, name, threads and dynamic shared memory of a kernel


class Rebuilt:
    """Builds executables of a plan. The caller ends them with `destroy`. `nodes`: those of its calls, then those of `prepare`."""

    def __init__(self, device: Device, plan: Plan, arm: int) -> None:
        self.device, self.cu, self.plan, self.arm = device, device.cu, plan, arm
        self.modules: list[Any] = []
        self._functions: dict[tuple[int, str], Any] = {}
        self._takes: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self._parameters: dict[int, Any] = {}
        self._keep: list[Any] = []
        self.nodes = (*plan.nodes, *(_moved(node, len(plan.nodes)) for node in plan.prepare))
        self.members: list[list[int]] = [[] for _ in range(plan.calls)]
        self.preparing: list[list[int]] = [[] for _ in range(plan.calls)]
        for index, node in enumerate(self.nodes):
            (self.members if index < len(plan.nodes) else self.preparing)[node.call].append(index)
        try:
            self._load()
        except Failed:
            self.close()
            raise

    def _load(self) -> None:
        for number, image in enumerate(self.plan.images):
            try:
                self.modules.append(ok(self.cu.cuModuleLoadData(image), "cuModuleLoadData"))
            except CudaError as error:
                raise refused("not-a-plan", f"image {number} ({len(image)} bytes) does not load", error, self.arm) from None
        for index, node in enumerate(self.nodes):
            if isinstance(node.work, Kernel):
                self._guard(index, lambda index=index, work=node.work: self._know(index, work))

    def close(self) -> None:
        while self.modules:
            ok(self.cu.cuModuleUnload(self.modules.pop()), "cuModuleUnload")

    # ---------------------------------------------------------------------------------------- executables

    def chain(self, order: Sequence[int]) -> Any:
        """These calls one after the other: within a call the plan's own edges, between calls a chain of ours."""
        return self._chained([self.members[call] for call in order])

    def prepare(self, order: Sequence[int]) -> Any:
        """What is prepared for these calls, in the same way."""
        return self._chained([self.preparing[call] for call in order])

    def _chained(self, groups: Sequence[Sequence[int]]) -> Any:
        graph = ok(self.cu.cuGraphCreate(0), "cuGraphCreate")
        last: list[Any] = []
        for members in groups:
            last = self._call(graph, members, last)
        return self._executable(graph)

    def in_line(self, order: Sequence[int], events: Sequence[Sequence[Any]] = ()) -> Any:
        """These calls with all nodes one after the other. `events`: for each call two that are recorded before its nodes, and one more
        after each node; none: nothing is watched."""
        graph = ok(self.cu.cuGraphCreate(0), "cuGraphCreate")
        last: list[Any] = []
        for place, call in enumerate(order):
            mine = events[place] if events else ()
            for event in mine[:2]:
                last = [self._event(graph, last, event)]
            for number, index in enumerate(self.members[call]):
                last = [self._node(graph, index, last)]
                last = [self._event(graph, last, mine[2 + number])] if mine else last
        return self._executable(graph)

    def width(self, call: int) -> int:
        """How many nodes of a call may run at the same time: no more than there are beside the longest line of whole edges."""
        depth: dict[int, int] = {}
        for index in self.members[call]:
            node = self.nodes[index]
            depth[index] = 1 + max((depth[before] for before in node.after if before not in node.early), default=0)
        return len(depth) - max(depth.values(), default=0) + 1 if depth else 1

    def destroy(self, executable: Any) -> None:
        ok(self.cu.cuGraphExecDestroy(executable), "cuGraphExecDestroy")

    def _executable(self, graph: Any) -> Any:
        try:
            made = ok(self.cu.cuGraphInstantiate(graph, 0), "cuGraphInstantiate")
            ok(self.cu.cuGraphUpload(made, self.device.stream), "cuGraphUpload")
            self.device.synchronise()
        except CudaError as error:
            raise refused("launch", "its graph cannot be launched", error, self.arm) from None
        ok(self.cu.cuGraphDestroy(graph), "cuGraphDestroy")
        return made

    def _event(self, graph: Any, after: list[Any], event: Any) -> Any:
        return ok(self.cu.cuGraphAddEventRecordNode(graph, after, len(after), event), "cuGraphAddEventRecordNode")

    def _call(self, graph: Any, members: Sequence[int], last: list[Any]) -> list[Any]:
        """Add the nodes of a call after `last`; the nodes after which the next call may begin."""
        handles: dict[int, Any] = {}
        roots = sum(not self.nodes[i].after for i in members)
        if len(last) * roots > JOIN:
            last = [ok(self.cu.cuGraphAddEmptyNode(graph, last, len(last)), "cuGraphAddEmptyNode")]
        for index in members:
            node = self.nodes[index]
            whole = [handles[b] for b in node.after if b not in node.early]
            handles[index] = self._node(graph, index, whole if node.after else last)
            self._early(graph, index, handles)
        followed = {before for i in members for before in self.nodes[i].after}
        return [handles[i] for i in members if i not in followed] or last

    def _early(self, graph: Any, index: int, handles: dict[int, Any]) -> None:
        """Programmatic edges: the node may start before these have ended."""
        early = self.nodes[index].early
        if not early:
            return
        edges = [self._programmatic() for _ in early]
        add = getattr(self.cu, "cuGraphAddDependencies_v2", None) or self.cu.cuGraphAddDependencies
        sources, targets = [handles[b] for b in early], [handles[index]] * len(early)
        self._guard(index, lambda: ok(add(graph, sources, targets, edges, len(early)), "cuGraphAddDependencies"))

    def _programmatic(self) -> Any:
        edge = self.cu.CUgraphEdgeData()
        edge.from_port = int(self.cu.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)
        edge.type = int(self.cu.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        return edge

    # ---------------------------------------------------------------------------------------- nodes

    def _node(self, graph: Any, index: int, after: list[Any]) -> Any:
        return self._guard(index, lambda: self._add(graph, index, after))

    def _guard(self, index: int, work: Any) -> Any:
        """What `work` gives; "not-a-plan" that names the node when the driver does not take it."""
        try:
            return work()
        except CudaError as error:
            raise refused("not-a-plan", f"node {index}, {named(self.nodes[index].work)}", error, self.arm) from None

    def _add(self, graph: Any, index: int, after: list[Any]) -> Any:
        cu, work = self.cu, self.nodes[index].work
        if isinstance(work, Kernel):
            return self._kernel(graph, index, work, after)
        if isinstance(work, Memset):
            return ok(cu.cuGraphAddMemsetNode(graph, after, len(after), self._memset(work), self.device.context), "cuGraphAddMemsetNode")
        if isinstance(work, Copy):
            return ok(cu.cuGraphAddMemcpyNode(graph, after, len(after), self._copy(work), self.device.context), "cuGraphAddMemcpyNode")
        return ok(cu.cuGraphAddEmptyNode(graph, after, len(after)), "cuGraphAddEmptyNode")

    def _memset(self, work: Memset) -> Any:
        p = self.cu.CUDA_MEMSET_NODE_PARAMS()
        p.dst, p.pitch, p.value, p.elementSize = work.address, work.pitch, work.value, work.element
        p.width, p.height = work.width, work.height
        return p

    def _copy(self, work: Copy) -> Any:
        p, device = self.cu.CUDA_MEMCPY3D(), self.cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        p.srcMemoryType = p.dstMemoryType = device
        p.srcDevice, p.srcPitch, p.srcHeight = work.source, max(work.source_pitch, work.width), work.height
        p.dstDevice, p.dstPitch, p.dstHeight = work.target, max(work.target_pitch, work.width), work.height
        p.WidthInBytes, p.Height, p.Depth = work.width, work.height, 1
        return p

    def _kernel(self, graph: Any, index: int, work: Kernel, after: list[Any]) -> Any:
        node = ok(self.cu.cuGraphAddKernelNode(graph, after, len(after), self._parameters[index]), "cuGraphAddKernelNode")
        self._attributes(node, work)
        return node

    def _attributes(self, node: Any, work: Kernel) -> None:
        if any(work.cluster):
            value = self.cu.CUkernelNodeAttrValue()
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = work.cluster
            self._set(node, "CLUSTER_DIMENSION", value)
        if work.cooperative:
            value = self.cu.CUkernelNodeAttrValue()
            value.cooperative = 1
            self._set(node, "COOPERATIVE", value)
        if work.carveout >= 0:
            value = self.cu.CUkernelNodeAttrValue()
            value.sharedMemCarveout = work.carveout
            self._set(node, "PREFERRED_SHARED_MEMORY_CARVEOUT", value)
        if work.scheduling:
            value = self.cu.CUkernelNodeAttrValue()
            value.clusterSchedulingPolicyPreference = self.cu.CUclusterSchedulingPolicy(work.scheduling)
            self._set(node, "CLUSTER_SCHEDULING_POLICY_PREFERENCE", value)

    def _set(self, node: Any, name: str, value: Any) -> None:
        which = getattr(self.cu.CUkernelNodeAttrID, f"CU_LAUNCH_ATTRIBUTE_{name}")
        ok(self.cu.cuGraphKernelNodeSetAttribute(node, which, value), f"cuGraphKernelNodeSetAttribute {name}")

    # ---------------------------------------------------------------------------------------- kernels

    def _know(self, index: int, work: Kernel) -> None:
        """Find the kernel of a node, let it have the shared memory it asks for, and lay its parameters out, once for all executables."""
        key = work.image, work.name
        if key not in self._functions:
            module = self.modules[work.image]
            self._functions[key] = ok(self.cu.cuModuleGetFunction(module, work.name.encode()), "cuModuleGetFunction")
            self._allow(self._functions[key], [k for k in self.plan.kernels() if (k.image, k.name) == key])
            self._takes[key] = self._parameters_of(self._functions[key])
        if why := _unlike(work, self._takes[key]):
            raise Failed("not-a-plan", f"node {index}, {named(work)}: {why}", self.arm)
        p = self.cu.CUDA_KERNEL_NODE_PARAMS()
        p.func, p.sharedMemBytes = self._functions[key], work.shared
        p.gridDimX, p.gridDimY, p.gridDimZ = work.grid
        p.blockDimX, p.blockDimY, p.blockDimZ = work.block
        self._fill(p, work)
        self._parameters[index] = p

    def _allow(self, function: Any, launches: Sequence[Kernel]) -> None:
        attribute = self.cu.CUfunction_attribute
        shared = max(k.shared for k in launches)
        wanted = [(attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)] if shared else []
        if max(math.prod(k.cluster) for k in launches) > PORTABLE_CLUSTER:
            wanted.append((attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
        for which, value in wanted:
            ok(self.cu.cuFuncSetAttribute(function, which, value), "cuFuncSetAttribute")

    def _parameters_of(self, function: Any) -> list[tuple[int, int]]:
        """(offset, size) of each parameter that a kernel takes."""
        takes: list[tuple[int, int]] = []
        for i in itertools.count():
            code, offset, size = self.cu.cuFuncGetParamInfo(function, i)
            if int(code) != 0:
                break
            takes.append((int(offset), int(size)))
        return takes

    def _fill(self, p: Any, work: Kernel) -> None:
        """Parameters as the driver wants them: an array of pointers, or one opaque buffer."""
        if work.parameters and work.parameters[0][0] == -1:
            data = work.parameters[0][1]
            buffer, size = self._aligned(data), ctypes.c_size_t(len(data))
            extra = (ctypes.c_void_p * 5)(1, buffer, 2, ctypes.addressof(size), 0)
            self._keep += [size, extra]
            p.extra = ctypes.addressof(extra)
            return
        pointers = (ctypes.c_void_p * max(1, len(work.parameters)))(*[self._aligned(data) for _, data in work.parameters])
        self._keep.append(pointers)
        p.kernelParams = ctypes.addressof(pointers)

    def _aligned(self, data: bytes) -> int:
        """Address of a copy at 128 bytes: TMA descriptors are read with that alignment."""
        buffer = ctypes.create_string_buffer(len(data) + 128)
        self._keep.append(buffer)
        at = -(-ctypes.addressof(buffer) // 128) * 128
        ctypes.memmove(at, data, len(data))
        return at

    # ---------------------------------------------------------------------------------------- facts

    def facts(self, times: Sequence[float] = (), call: int = 0) -> tuple[KernelFacts, ...]:
        """The kernels of one call in the order of their first launch; `times` of each of its nodes give the shares."""
        counts: Counter[Key] = Counter()
        spent: dict[Key, float] = defaultdict(float)
        first: dict[Key, Kernel] = {}
        for place, index in enumerate(self.members[call]):
            work = self.nodes[index].work
            if isinstance(work, Kernel):
                key = work.image, work.name, math.prod(work.block), work.shared
                first.setdefault(key, work)
                counts[key] += 1
                spent[key] += times[place] if times else 0.0
        total = sum(times) or 1.0
        return tuple(replace(self._facts(work), launches=counts[key], share=spent[key] / total) for key, work in first.items())

    def _facts(self, work: Kernel) -> KernelFacts:
        function, attribute = self._functions[work.image, work.name], self.cu.CUfunction_attribute

        def known(name: str) -> int:
            return int(ok(self.cu.cuFuncGetAttribute(getattr(attribute, f"CU_FUNC_ATTRIBUTE_{name}"), function), "cuFuncGetAttribute"))

        shared = known("SHARED_SIZE_BYTES") + work.shared
        return KernelFacts(work.name, 0, known("NUM_REGS"), known("LOCAL_SIZE_BYTES"), shared, math.prod(work.block))


def _moved(node: Node, by: int) -> Node:
    """The node where those it depends on are counted from `by`."""
    return replace(node, after=tuple(i + by for i in node.after), early=tuple(i + by for i in node.early))


def _unlike(work: Kernel, takes: list[tuple[int, int]]) -> str:
    """Why these are not the parameters that a kernel takes, or "": the driver would read past those that are missing."""
    given = [(offset, len(data)) for offset, data in work.parameters]
    if len(given) == 1 and given[0][0] == -1:
        needed = max((offset + size for offset, size in takes), default=0)
        return "" if given[0][1] >= needed else f"{given[0][1]} bytes of parameters, it takes {needed}"
    return "" if given == takes else f"parameters {given} (offset, bytes), it takes {takes}"


def named(work: Work) -> str:
    if isinstance(work, Kernel):
        return f"kernel `{work.name}`"
    return "a memset" if isinstance(work, Memset) else "a copy" if isinstance(work, Copy) else "an empty node"
