"""A plan as an executable graph in this process: same addresses, same images, same bytes, our own order of calls."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from keepfast.launcher.driver import Device, ok
from keepfast.launcher.plan import Kernel, Memset, Plan


class Graph:
    """The plan's calls chained in the order given. Keeps what the driver reads by pointer alive."""

    def __init__(self, device: Device, plan: Plan) -> None:
        self.device, self.plan = device, plan
        self._keep: list[Any] = []
        self.modules = [ok(device.cu.cuModuleLoadData(image), "cuModuleLoadData") for image in plan.images]
        self.executables: list[Any] = []

    def build(self, order: Sequence[int]) -> None:
        """Make one more executable: within a call the plan's own edges, between calls a chain of ours."""
        cu = self.device.cu
        graph = ok(cu.cuGraphCreate(0), "cuGraphCreate")
        handles: dict[int, Any] = {}
        last: list[Any] = []
        for call in order:
            members = self.plan.of_call(call)
            followed = {before for i in members for before in self.plan.nodes[i].after}
            for i in members:
                node = self.plan.nodes[i]
                after = [handles[b] for b in node.after] or last
                handles[i] = self._add(graph, node.work, after)
            last = [handles[i] for i in members if i not in followed]
        self.executables.append(ok(cu.cuGraphInstantiate(graph, 0), "cuGraphInstantiate"))
        ok(cu.cuGraphUpload(self.executables[-1], self.device.stream), "cuGraphUpload")
        self.device.synchronise()

    def launch(self, which: int) -> None:
        ok(self.device.cu.cuGraphLaunch(self.executables[which], self.device.stream), "cuGraphLaunch")

    def _add(self, graph: Any, work: Kernel | Memset, after: list[Any]) -> Any:
        return self._kernel(graph, work, after) if isinstance(work, Kernel) else self._memset(graph, work, after)

    def _memset(self, graph: Any, work: Memset, after: list[Any]) -> Any:
        cu = self.device.cu
        p = cu.CUDA_MEMSET_NODE_PARAMS()
        p.dst, p.pitch, p.value, p.elementSize, p.width, p.height = (
            work.address,
            work.pitch,
            work.value,
            work.element,
            work.width,
            work.height,
        )
        return ok(cu.cuGraphAddMemsetNode(graph, after, len(after), p, self.device.context), "cuGraphAddMemsetNode")

    def _kernel(self, graph: Any, work: Kernel, after: list[Any]) -> Any:
        cu = self.device.cu
        function = ok(cu.cuModuleGetFunction(self.modules[work.image], work.name.encode()), f"cuModuleGetFunction {work.name}")
        if work.shared:
            limit = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            ok(cu.cuFuncSetAttribute(function, limit, work.shared), "cuFuncSetAttribute")
        p = cu.CUDA_KERNEL_NODE_PARAMS()
        p.func = function
        p.gridDimX, p.gridDimY, p.gridDimZ = work.grid
        p.blockDimX, p.blockDimY, p.blockDimZ = work.block
        p.sharedMemBytes = work.shared
        self._fill(p, work)
        node = ok(cu.cuGraphAddKernelNode(graph, after, len(after), p), f"cuGraphAddKernelNode {work.name}")
        self._attributes(node, work)
        return node

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

    def _attributes(self, node: Any, work: Kernel) -> None:
        cu = self.device.cu
        if any(work.cluster):
            value = cu.CUkernelNodeAttrValue()
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = work.cluster
            self._set(node, "CLUSTER_DIMENSION", value)
        if work.cooperative:
            value = cu.CUkernelNodeAttrValue()
            value.cooperative = 1
            self._set(node, "COOPERATIVE", value)

    def _set(self, node: Any, name: str, value: Any) -> None:
        cu = self.device.cu
        which = getattr(cu.CUkernelNodeAttrID, f"CU_LAUNCH_ATTRIBUTE_{name}")
        ok(cu.cuGraphKernelNodeSetAttribute(node, which, value), "cuGraphKernelNodeSetAttribute")
