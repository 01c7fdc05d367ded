"""Plans as graphs: order, edges, attributes, and what is refused."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest

from keepfast.gpu.plan import VERSION, Copy, Empty, Kernel, Memset, Node, Plan, Segment, Work
from keepfast.launcher.faults import Failed
from keepfast.launcher.rebuild import JOIN, Rebuilt
from tests.launcher import fake
from tests.launcher.world import World

BASE = 1 << 42
NOOP = Kernel(0, "noop", (1, 1, 1), (32, 1, 1), 0, ())


def plan(*nodes: Node, calls: int = 1, images: tuple[bytes, ...] = ()) -> Plan:
    segments = (Segment(BASE, 1 << 21),)
    return Plan(VERSION, "small", calls, BASE, images or (fake.plan_image(),), nodes, segments, ((),) * calls, ())


def built(world: World, made: Plan, order: list[int]) -> Any:
    return Rebuilt(world.device, made, 0).chain(order)


def refusal(world: World, made: Plan) -> Any:
    with pytest.raises(Failed) as failed:
        Rebuilt(world.device, made, 1).chain([0])
    return failed.value.fault


def test_calls_are_chained_in_the_order_given(world: World) -> None:
    """Two roots and two ends a call: each end before each root of the next."""
    nodes = [Node(c, NOOP, after) for c in range(3) for after in ((), (), (3 * c,), (3 * c + 1,))]
    nodes = [Node(n.call, n.work, tuple(4 * n.call + a % 3 for a in n.after)) for n in nodes]
    graph = built(world, plan(*nodes, calls=3), [2, 0, 1])
    groups = [graph.nodes[i : i + 4] for i in (0, 4, 8)]
    for earlier, later in itertools.pairwise(groups):
        for node in later:
            assert set(earlier) <= graph.before(node)
    assert all(node.after == [] for node in groups[0][:2])
    assert len(graph.nodes) == 12


def test_many_ends_are_joined_by_an_empty_node(world: World) -> None:
    wide = 20
    nodes = [Node(c, NOOP, ()) for c in range(2) for _ in range(wide)]
    graph = built(world, plan(*nodes, calls=2), [0, 1])
    assert wide * wide > JOIN
    assert len(graph.nodes) == 2 * wide + 1
    assert all(set(graph.nodes[:wide]) <= graph.before(node) for node in graph.nodes[wide + 1 :])


def test_a_call_without_nodes_breaks_no_chain(world: World) -> None:
    graph = built(world, plan(Node(0, NOOP, ()), Node(2, NOOP, ()), calls=3), [0, 1, 2])
    assert graph.nodes[0] in graph.before(graph.nodes[1])


def test_every_kind_of_work(world: World) -> None:
    work: list[Work] = [
        Memset(BASE, 0, 0xAB, 1, 100, 1),
        Copy(BASE + 4096, 64, BASE, 32, 16, 3),
        Empty(),
        Kernel(0, "noop", (4, 2, 1), (64, 1, 1), 5000, (), cluster=(2, 2, 1), cooperative=True, carveout=75),
        Kernel(0, "noop", (32, 1, 1), (64, 1, 1), 0, (), cluster=(16, 1, 1)),
    ]
    graph = built(world, plan(*(Node(0, w, (i - 1,) if i else ()) for i, w in enumerate(work))), [0])
    memset, copy, empty, kernel, last = graph.nodes
    assert [n.kind for n in graph.nodes] == ["memset", "copy", "empty", "kernel", "kernel"]
    assert (memset.what.dst, memset.what.value, memset.what.elementSize, memset.what.width, memset.what.height) == (BASE, 0xAB, 1, 100, 1)
    assert (copy.what.srcDevice, copy.what.dstDevice, copy.what.WidthInBytes, copy.what.Height, copy.what.Depth) == (
        BASE,
        BASE + 4096,
        16,
        3,
        1,
    )
    assert (copy.what.srcPitch, copy.what.dstPitch) == (32, 64)
    assert empty.after == [copy]
    assert (kernel.what.gridDimX, kernel.what.gridDimY, kernel.what.blockDimX, kernel.what.sharedMemBytes) == (4, 2, 64, 5000)
    cluster = kernel.attributes["CLUSTER_DIMENSION"].clusterDim
    assert (cluster.x, cluster.y, cluster.z) == (2, 2, 1)
    assert kernel.attributes["COOPERATIVE"].cooperative == 1
    assert kernel.attributes["PREFERRED_SHARED_MEMORY_CARVEOUT"].sharedMemCarveout == 75
    assert set(last.attributes) == {"CLUSTER_DIMENSION"}
    known = kernel.what.func.attributes
    assert known == {
        "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 5000,
        "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED": 1,
    }


@pytest.mark.parametrize("versioned", [False, True])
def test_programmatic_edges(world: World, versioned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if versioned:  # cuda-bindings 12: the function with edge data has another name
        monkeypatch.setattr(fake.Fake, "cuGraphAddDependencies_v2", fake.Fake.cuGraphAddDependencies, raising=False)
        monkeypatch.delattr(fake.Fake, "cuGraphAddDependencies")
    nodes = [Node(0, NOOP, ()), Node(0, NOOP, (0,), (0,)), Node(0, NOOP, (0, 1), (1,)), Node(1, NOOP, ())]
    graph = built(world, plan(*nodes, calls=2), [0, 1])
    first, second, third, fourth = graph.nodes
    assert (second.after, second.early) == ([], [first])
    assert (third.after, third.early) == ([first], [second])
    assert (fourth.after, fourth.early) == ([third], [])


def test_a_programmatic_edge_from_a_memset_names_the_node(world: World) -> None:
    made = plan(Node(0, Memset(BASE, 0, 0, 1, 4, 1), ()), Node(0, NOOP, (0,), (0,)))
    fault = refusal(world, made)
    assert (fault.kind, fault.arm) == ("not-a-plan", 1)
    assert "node 1, kernel `noop`" in fault.detail


def test_an_image_that_does_not_load(world: World) -> None:
    fault = refusal(world, plan(Node(0, NOOP, ()), images=(b"no image of noop",)))
    assert (fault.kind, fault.arm) == ("not-a-plan", 1)
    assert "image 0 (16 bytes)" in fault.detail
    assert "INVALID_IMAGE" in fault.detail


def test_a_kernel_that_its_image_lacks(world: World) -> None:
    fault = refusal(world, plan(Node(0, Kernel(0, "emulate_run", (1, 1, 1), (1, 1, 1), 0, ()), ())))
    assert fault.kind == "not-a-plan"
    assert "node 0, kernel `emulate_run`" in fault.detail


@pytest.mark.parametrize(
    "given",
    [
        ((0, bytes(8)), (8, bytes(8)), (16, bytes(8))),
        ((0, bytes(8)), (8, bytes(8)), (16, bytes(4)), (24, bytes(4))),
        ((0, bytes(8)), (8, bytes(8)), (16, bytes(8)), (32, bytes(4))),
        ((-1, bytes(27)),),
        (),
    ],
)
def test_parameters_that_the_kernel_does_not_take_never_reach_the_driver(world: World, given: tuple[tuple[int, bytes], ...]) -> None:
    fault = refusal(world, plan(Node(0, Kernel(0, "scale", (1, 1, 1), (1, 1, 1), 0, given), ())))
    assert fault.kind == "not-a-plan"
    assert "it takes" in fault.detail


def test_errors_of_adding_and_instantiating(world: World) -> None:
    world.cu.refusals["cuGraphAddMemcpyNode"] = lambda *_: 1
    fault = refusal(world, plan(Node(0, Copy(BASE, 1, BASE + 8, 1, 1, 1), ())))
    assert (fault.kind, fault.detail[:14]) == ("not-a-plan", "node 0, a copy")
    world.cu.refusals = {"cuGraphInstantiate": lambda *_: 720}
    fault = refusal(world, plan(Node(0, NOOP, ())))
    assert (fault.kind, fault.arm) == ("launch", 1)
    assert "COOPERATIVE_LAUNCH_TOO_LARGE" in fault.detail
    world.cu.refusals = {"cuModuleLoadData": lambda *_: 2}
    assert refusal(world, plan(Node(0, NOOP, ()))).kind == "memory"


def test_calls_are_watched_node_by_node_one_after_the_other(world: World) -> None:
    nodes = [Node(c, work, tuple(3 * c + a for a in after)) for c in range(3) for work, after in ((NOOP, ()), (NOOP, ()), (Empty(), (0,)))]
    rebuilt = Rebuilt(world.device, plan(*nodes, calls=3), 0)
    events = [[world.device.event() for _ in range(5)] for _ in range(2)]
    graph = rebuilt.in_line([2, 0], events)
    assert [n.kind for n in graph.nodes] == ["event", "event", "kernel", "event", "kernel", "event", "empty", "event"] * 2
    assert [n.what for n in graph.nodes if n.kind == "event"] == events[0] + events[1]
    unwatched = rebuilt.in_line([2, 0])
    assert [n.kind for n in unwatched.nodes] == ["kernel", "kernel", "empty"] * 2
    for one in (graph, unwatched):
        assert all(later.after == [earlier] for earlier, later in itertools.pairwise(one.nodes))


@pytest.mark.parametrize(
    ("edges", "width"),
    [
        ((((), ()),), 1),
        ((((), ()), ((0,), ()), ((1,), ())), 1),  # a line
        ((((), ()), ((), ()), ((0, 1), ())), 2),  # two, joined
        ((((), ()), ((0,), (0,)), ((1,), ())), 2),  # a programmatic launch
        ((((), ()), ((), ()), ((), ())), 3),
        ((), 1),
    ],
)
def test_how_many_nodes_may_run_at_once(world: World, edges: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], width: int) -> None:
    made = plan(*(Node(0, NOOP, after, early) for after, early in edges))
    assert Rebuilt(world.device, made, 0).width(0) == width


def test_facts_of_kernels(world: World) -> None:
    pointers = ((0, bytes(8)), (8, bytes(8)), (16, struct.pack("<Q", 0)))
    add = Kernel(0, "add_to", (1, 1, 1), (64, 2, 1), 512, pointers)
    rebuilt = Rebuilt(world.device, plan(Node(0, add, ()), Node(0, NOOP, (0,)), Node(0, Empty(), ()), Node(0, add, (1,))), 0)
    first, second = rebuilt.facts([3.0, 1.0, 1.0, 5.0])
    assert (first.name, first.launches, first.registers, first.spill_bytes, first.shared_bytes, first.threads) == (
        "add_to",
        2,
        40,
        16,
        1536,
        128,
    )
    assert (first.share, second.name, second.share) == (0.8, "noop", 0.1)
    assert [f.share for f in rebuilt.facts()] == [0.0, 0.0]
