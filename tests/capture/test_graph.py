"""Captured graphs become nodes of plans. The driver is a fake one; its records are the real ones of cuda-bindings."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from keepfast.capture.cupti import Images, Outside
from keepfast.capture.graph import Decoder, Edge, Owners, flattened
from keepfast.capture.refusals import NotAPlan
from keepfast.gpu.plan import VERSION, Copy, Empty, Kernel, Memset, Plan, Segment, check

cu = pytest.importorskip("cuda.bindings.driver")

OK, MISSING = cu.CUresult.CUDA_SUCCESS, cu.CUresult.CUDA_ERROR_INVALID_VALUE
ADD = b"\x7fELF one .text.add\0"
ADD_AGAIN = b"\x7fELF two .text.add\0"
OTHER = b"\x7fELF .text.scale\0 .text.add_more\0"


class Driver:
    """cuda.bindings.driver over nodes that a test describes."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[str, Any]] = {}
        self.attributes: dict[int, dict[str, Any]] = {}
        self.names = {1: b"add", 2: b"scale", 3: b"add"}
        self.modules = {1: 101, 2: 102, 3: 103}
        self.layouts: dict[int, tuple[tuple[int, int], ...]] = {1: ((0, 8), (8, 4)), 2: ((0, 8),), 3: ((0, 8), (8, 4))}
        self.libraries: dict[int, int] = {}
        self.carveout = -1
        self.asked = 0
        self.keep: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(cu, name)

    def add(self, kind: str, record: Any = None, **attributes: Any) -> int:
        node = 0x1000 + len(self.made)
        self.made[node] = (kind, record)
        self.attributes[node] = attributes
        return node

    def kernel(self, function: int = 1, values: tuple[bytes, ...] = (b"\1" * 8, b"\2" * 4), **attributes: Any) -> int:
        p = cu.CUDA_KERNEL_NODE_PARAMS()
        p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ, p.sharedMemBytes = 7, 2, 1, 64, 2, 1, 1024
        p.func = cu.CUfunction(function)
        buffers = [ctypes.create_string_buffer(v, len(v)) for v in values]
        table = (ctypes.c_void_p * len(values))(*(ctypes.addressof(b) for b in buffers))
        p.kernelParams = ctypes.addressof(table)
        self.keep += [buffers, table]
        return self.add("KERNEL", p, **attributes)

    def cuGraphNodeGetType(self, node: Any) -> tuple[Any, Any]:
        return OK, getattr(cu.CUgraphNodeType, f"CU_GRAPH_NODE_TYPE_{self.made[int(node)][0]}")

    def _record(self, node: Any) -> tuple[Any, Any]:
        return OK, self.made[int(node)][1]

    cuGraphKernelNodeGetParams = cuGraphMemsetNodeGetParams = cuGraphMemcpyNodeGetParams = _record

    def cuGraphKernelNodeGetAttribute(self, node: Any, which: Any) -> tuple[Any, Any]:
        value = cu.CUlaunchAttributeValue()
        given = self.attributes[int(node)].get(which.name.removeprefix("CU_LAUNCH_ATTRIBUTE_"))
        if given == "unknown":
            return MISSING, None
        if given is not None:
            given(value)
        return OK, value

    def cuFuncGetName(self, function: Any) -> tuple[Any, bytes]:
        self.asked += 1
        return OK, self.names[int(function)]

    def cuFuncGetModule(self, function: Any) -> tuple[Any, Any]:
        module = self.modules.get(int(function), 0)
        return (OK, cu.CUmodule(module)) if module else (MISSING, None)

    def cuKernelGetFunction(self, kernel: Any) -> tuple[Any, Any]:
        return OK, cu.CUfunction(int(kernel) - 50)

    def cuLibraryGetModule(self, library: Any) -> tuple[Any, Any]:
        module = self.libraries.get(int(library), 0)
        return (OK, cu.CUmodule(module)) if module else (MISSING, None)

    def cuFuncGetAttribute(self, _which: Any, _function: Any) -> tuple[Any, int]:
        return OK, self.carveout

    def cuFuncGetParamInfo(self, function: Any, index: int) -> tuple[Any, int, int]:
        layout = self.layouts[int(function)]
        return (OK, *layout[index]) if index < len(layout) else (MISSING, 0, 0)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def images() -> Images:
    made = Images()
    made.loaded += [ADD, OTHER]
    return made


def decoded(driver: Driver, images: Images, owner: dict[int, int] | None = None, edges: tuple[Edge, ...] = ()) -> tuple[Any, list[bytes]]:
    decoder = Decoder(driver, images)
    nodes = decoder.nodes(owner or dict.fromkeys(driver.made, 0), edges)
    return nodes, decoder.images


def test_a_kernel_with_all_it_has(driver: Driver, images: Images) -> None:
    def cluster(value: Any) -> None:
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = 2, 1, 1

    driver.kernel(
        CLUSTER_DIMENSION=cluster,
        COOPERATIVE=lambda v: setattr(v, "cooperative", 1),
        PREFERRED_SHARED_MEMORY_CARVEOUT=lambda v: setattr(v, "sharedMemCarveout", 50),
        CLUSTER_SCHEDULING_POLICY_PREFERENCE=lambda v: setattr(
            v, "clusterSchedulingPolicyPreference", cu.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
        ),
    )
    nodes, used = decoded(driver, images)
    parameters = ((0, b"\1" * 8), (8, b"\2" * 4))
    assert nodes[0].work == Kernel(0, "add", (7, 2, 1), (64, 2, 1), 1024, parameters, (2, 1, 1), True, 50, 1)
    assert used == [ADD]


def test_a_kernel_as_most_are(driver: Driver, images: Images) -> None:
    driver.kernel(2, (b"\3" * 8,), PREFERRED_SHARED_MEMORY_CARVEOUT=lambda v: setattr(v, "sharedMemCarveout", 2**32 - 1))
    nodes, used = decoded(driver, images)
    assert nodes[0].work == Kernel(0, "scale", (7, 2, 1), (64, 2, 1), 1024, ((0, b"\3" * 8),))
    assert used == [OTHER]


def test_a_carveout_of_the_function_counts_where_the_launch_has_none(driver: Driver, images: Images) -> None:
    driver.carveout = 75
    driver.kernel()
    assert decoded(driver, images)[0][0].work.carveout == 75


def test_attributes_a_driver_does_not_know_are_absent(driver: Driver, images: Images) -> None:
    names = (
        "ACCESS_POLICY_WINDOW",
        "PRIORITY",
        "MEM_SYNC_DOMAIN",
        "PREFERRED_CLUSTER_DIMENSION",
        "DEVICE_UPDATABLE_KERNEL_NODE",
        "COOPERATIVE",
    )
    driver.kernel(**dict.fromkeys(names, "unknown"))
    assert not decoded(driver, images)[0][0].work.cooperative


def test_attributes_a_plan_has_no_word_for_are_named_with_their_kernel(driver: Driver, images: Images) -> None:
    def preferred(value: Any) -> None:
        value.preferredClusterDim.x, value.preferredClusterDim.y, value.preferredClusterDim.z = 4, 1, 1

    domain = cu.CUlaunchMemSyncDomain.CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE
    for words, attributes in {
        "an access policy window": {"ACCESS_POLICY_WINDOW": lambda v: setattr(v.accessPolicyWindow, "num_bytes", 4096)},
        "a priority": {"PRIORITY": lambda v: setattr(v, "priority", -5)},
        "a memory sync domain": {"MEM_SYNC_DOMAIN": lambda v: setattr(v, "memSyncDomain", domain)},
        "a preferred cluster dimension": {"PREFERRED_CLUSTER_DIMENSION": preferred},
        "updates from the device": {"DEVICE_UPDATABLE_KERNEL_NODE": lambda v: setattr(v.deviceUpdatableKernelNode, "deviceUpdatable", 1)},
    }.items():
        fresh = Driver()
        fresh.kernel(**attributes)  # type: ignore[arg-type]
        with pytest.raises(NotAPlan, match=f"^kernel `add`, launched with {words}$"):
            decoded(fresh, images)


def test_a_kernel_known_by_its_library(driver: Driver, images: Images) -> None:
    """`func` can be null with `kern` set."""
    node = driver.kernel()
    p = driver.made[node][1]
    p.func, p.kern = cu.CUfunction(0), cu.CUkernel(51)
    assert decoded(driver, images)[0][0].work.name == "add"


def test_the_image_is_that_of_the_module(driver: Driver, images: Images) -> None:
    """Two specialisations of one kernel have one name."""
    images.given = {101: ADD, 103: ADD_AGAIN}
    images.loaded += [ADD_AGAIN]
    driver.kernel(1)
    driver.kernel(3)
    driver.kernel(1)
    nodes, used = decoded(driver, images)
    assert [n.work.image for n in nodes] == [0, 1, 0]
    assert used == [ADD, ADD_AGAIN]


def test_the_image_of_a_library_is_found_through_its_module(driver: Driver, images: Images) -> None:
    images.libraries, images.loaded = {901: ADD, 902: OTHER}, [ADD_AGAIN]
    driver.libraries = {901: 101}
    driver.kernel(1)
    assert decoded(driver, images)[1] == [ADD]
    assert images.libraries == {902: OTHER}, "not loaded yet"


def test_else_the_image_loaded_last_that_holds_the_kernel(driver: Driver, images: Images) -> None:
    images.loaded = [ADD, ADD_AGAIN, OTHER]
    driver.modules = {}
    driver.kernel(1)
    assert decoded(driver, images)[1] == [ADD_AGAIN], "add_more is another kernel"


def test_an_image_that_was_not_seen(driver: Driver, images: Images) -> None:
    images.loaded = []
    driver.kernel()
    with pytest.raises(NotAPlan, match="kernel `add`, whose image was not seen being loaded"):
        decoded(driver, images)


def test_functions_are_asked_about_once(driver: Driver, images: Images) -> None:
    for _ in range(50):
        driver.kernel()
    decoded(driver, images)
    assert driver.asked == 1


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_parameters_in_one_buffer(driver: Driver, images: Images, order: tuple[int, int]) -> None:
    """cuBLAS writes its pairs in either order."""
    node = driver.kernel()
    data, size = ctypes.create_string_buffer(b"\5" * 200, 200), ctypes.c_size_t(200)
    places = {1: ctypes.addressof(data), 2: ctypes.addressof(size)}
    words = (ctypes.c_void_p * 5)(order[0], places[order[0]], order[1], places[order[1]], 0)
    p = driver.made[node][1]
    p.kernelParams, p.extra = 0, ctypes.addressof(words)
    assert decoded(driver, images)[0][0].work.parameters == ((-1, b"\5" * 200),)


def test_parameters_described_in_an_unknown_way(driver: Driver, images: Images) -> None:
    node = driver.kernel()
    words = (ctypes.c_void_p * 5)(1, 0, 9, 0, 0)
    p = driver.made[node][1]
    p.kernelParams, p.extra = 0, ctypes.addressof(words)
    with pytest.raises(NotAPlan, match="a way that is not known"):
        decoded(driver, images)


def test_memory_from_outside_is_named_with_who_took_it(driver: Driver, images: Images) -> None:
    images.outside = [Outside(0x7000, 0x8000, "cuMemAlloc", "kernel.py:7: `lib.init()`")]
    driver.layouts[1] = ((0, 8), (8, 20))
    driver.kernel(1, ((0x5000).to_bytes(8, "little"), bytes(8) + (0x7FFF).to_bytes(8, "little") + bytes(4)))
    words = r"kernel `add` uses memory that cuMemAlloc gave, outside torch's allocator \(kernel.py:7: `lib.init\(\)`\)"
    with pytest.raises(NotAPlan, match=words):
        decoded(driver, images)
    images.outside = [Outside(0x8000, 0x9000, "cuMemAlloc", "")]
    decoded(driver, images)


def copy_of(**fields: Any) -> Any:
    p = cu.CUDA_MEMCPY3D()
    given = {
        "srcMemoryType": 2,
        "dstMemoryType": 2,
        "WidthInBytes": 256,
        "Height": 1,
        "Depth": 1,
        "srcDevice": 4096,
        "dstDevice": 8192,
    } | fields
    for name, value in given.items():
        kind = cu.CUmemorytype if name.endswith("Type") else cu.CUdeviceptr if name.endswith("Device") else int
        setattr(p, name, kind(value))
    return p


def test_memsets_copies_and_joins(driver: Driver, images: Images) -> None:
    p = cu.CUDA_MEMSET_NODE_PARAMS()
    p.dst, p.pitch, p.value, p.elementSize, p.width, p.height = cu.CUdeviceptr(4096), 64, 7, 4, 8, 2
    driver.add("MEMSET", p)
    driver.add("MEMCPY", copy_of())
    driver.add("MEMCPY", copy_of(Height=3, Depth=0, srcPitch=512, dstPitch=256, srcY=2, srcXInBytes=16, dstMemoryType=4))
    driver.add("EMPTY")
    nodes, used = decoded(driver, images)
    assert [n.work for n in nodes] == [
        Memset(4096, 64, 7, 4, 8, 2),
        Copy(8192, 0, 4096, 0, 256, 1),
        Copy(8192, 256, 4096 + 2 * 512 + 16, 512, 256, 3),
        Empty(),
    ]
    assert used == []
    check(Plan(VERSION, "c", 1, 4096, (), nodes, (Segment(4096, 1 << 20),), ((),), ()))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"srcMemoryType": 1}, "a memcpy node that reads memory of the host"),
        ({"dstMemoryType": 1}, "a memcpy node that writes to the host"),
        ({"srcMemoryType": 3}, "a memcpy node on an array"),
        ({"Depth": 4}, "a memcpy node in three dimensions"),
    ],
)
def test_copies_that_a_plan_cannot_say(driver: Driver, images: Images, fields: dict[str, int], words: str) -> None:
    driver.add("MEMCPY", copy_of(**fields))
    with pytest.raises(NotAPlan, match=words):
        decoded(driver, images)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("HOST", "a host node"), ("MEM_ALLOC", "a mem alloc node"), ("EVENT_RECORD", "an? event record node"),
     ("CONDITIONAL", "a conditional node"), ("WAIT_EVENT", "a wait event node")],
)  # fmt: skip
def test_other_nodes_are_named(driver: Driver, images: Images, kind: str, words: str) -> None:
    driver.add(kind)
    with pytest.raises(NotAPlan, match=words):
        decoded(driver, images)


def test_edges_inside_a_call_stay_and_edges_to_later_calls_go(driver: Driver, images: Images) -> None:
    a, b, c, d = (driver.kernel() for _ in range(4))
    owner = {a: 0, b: 0, c: 1, d: 1}
    nodes, _ = decoded(driver, images, owner, (Edge(a, b), Edge(b, c), Edge(a, d), Edge(c, d, 1)))
    assert [(n.call, n.after, n.early) for n in nodes] == [(0, (), ()), (0, (0,), ()), (1, (), ()), (1, (2,), (2,))]


def test_a_fork_that_joins(driver: Driver, images: Images) -> None:
    a, left, right, join = (driver.kernel() for _ in range(4))
    nodes, _ = decoded(driver, images, None, (Edge(a, left), Edge(a, right), Edge(left, join), Edge(right, join)))
    assert [n.after for n in nodes] == [(), (0,), (0,), (1, 2)]


def test_nodes_listed_in_another_order_are_put_after_what_they_need(driver: Driver, images: Images) -> None:
    a, b, c, d = (driver.kernel(2, (bytes([i]) * 8,)) for i in range(4))
    nodes, _ = decoded(driver, images, {d: 1, a: 0, c: 0, b: 0}, (Edge(b, a), Edge(c, b), Edge(a, d)))
    assert [n.work.parameters[0][1][0] for n in nodes] == [2, 1, 0, 3]
    assert [n.after for n in nodes] == [(), (0,), (1,), ()]
    assert [n.call for n in nodes] == [0, 0, 0, 1]


def test_edges_that_cannot_be_said(driver: Driver, images: Images) -> None:
    a, b = driver.kernel(), driver.kernel()
    with pytest.raises(NotAPlan, match="waits for the start of a kernel only"):
        decoded(driver, images, None, (Edge(a, b, 2),))
    with pytest.raises(NotAPlan, match="call 0 waits for call 1, which comes after it"):
        decoded(driver, images, {a: 0, b: 1}, (Edge(b, a),))


def test_nodes_belong_to_the_call_in_which_they_appear() -> None:
    owners = Owners()
    assert owners.note(0, [5, 3]) == 2
    assert owners.note(1, [9, 3, 5, 1]) == 2
    assert owners.note(2, [9, 3, 5, 1]) == 0
    assert owners.of == {5: 0, 3: 0, 9: 1, 1: 1}


def test_a_graph_within_is_put_in_its_place() -> None:
    """1 -> [10 -> 11, 12] -> 2, in call 0; a graph in the graph of call 1; both keep the call they were launched in."""
    graphs = {5: ([10, 11, 12], [Edge(10, 11)]), 6: ([20], []), 20: ([30, 31], [Edge(30, 31, 1)])}
    owners, edges = flattened({1: 0, 5: 0, 2: 0, 6: 1}, [Edge(1, 5), Edge(5, 2), Edge(2, 6)], graphs.get)
    assert owners == {1: 0, 10: 0, 11: 0, 12: 0, 2: 0, 30: 1, 31: 1}
    assert list(owners) == [1, 10, 11, 12, 2, 30, 31]
    pairs = {(e.start, e.end, e.port) for e in edges}
    assert pairs == {(10, 11, 0), (1, 10, 0), (1, 12, 0), (11, 2, 0), (12, 2, 0), (30, 31, 1), (2, 30, 0)}
    assert len(edges) == len(pairs)


def test_an_empty_graph_within_is_an_order() -> None:
    owners, edges = flattened({1: 0, 5: 0, 2: 0}, [Edge(1, 5, 1), Edge(5, 2)], {5: ([], [])}.get)
    assert (owners, edges) == ({1: 0, 2: 0}, [Edge(1, 2, 1)])


def test_two_graphs_one_after_the_other() -> None:
    owners, edges = flattened({5: 0, 6: 0}, [Edge(5, 6)], {5: ([10, 11], []), 6: ([20, 21], [])}.get)
    assert list(owners) == [10, 11, 20, 21]
    assert {(e.start, e.end) for e in edges} == {(10, 20), (10, 21), (11, 20), (11, 21)}


def test_the_graph_behind_a_node_is_read(driver: Driver, images: Images) -> None:
    outer, child = driver.kernel(), driver.add("GRAPH", cu.CUgraph(0x77))
    driver.cuGraphChildGraphNodeGetGraph = driver._record  # type: ignore[attr-defined]
    decoder = Decoder(driver, images)
    assert [decoder.within(node) for node in (outer, child)] == [0, 0x77]
    inner = driver.kernel(2, (b"\3" * 8,))
    owners, edges = flattened({outer: 0, child: 0}, [Edge(outer, child)], lambda n: ([inner], []) if decoder.within(n) else None)
    nodes = decoder.nodes(owners, edges)
    assert [(n.work.name, n.after) for n in nodes] == [("add", ()), ("scale", (0,))]  # type: ignore[union-attr]
