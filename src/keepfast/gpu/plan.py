"""A launch plan: what a captured stream does, as plain data with a version. One plan a case and capture.

Written by the untrusted capture, read by the trusted launcher, so reading is strict: sizes are capped, while it is read so that a small
plan cannot become a large one in memory; references hold, and everything lies in the arena. Must not know CUDA.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from keepfast.gpu.cubin import code_hash

VERSION = 3
MAX_BYTES = 256 << 20
MAX_NODES = 40_000
MAX_CALLS = 1024
MAX_IMAGES = 64
MAX_PARAMETERS = 4096  # bytes
MAX_SEGMENTS = 65_536
MAX_RESULTS = 64  # of a call
MAX_EDGES = 1024  # into one node
MAX_PAIRS = 512  # parameters of a kernel
MAX_GRID = (2**31 - 1, 65_535, 65_535)


class PlanError(Exception):
    """Why this is no plan, as a sentence."""


class Segment(Struct, frozen=True, array_like=True):
    """Device memory: [address, address + size)."""

    address: int
    size: int

    @property
    def end(self) -> int:
        return self.address + self.size


class Block(Struct, frozen=True, array_like=True):
    """Memory that lived on when the capture ended (constants, workspaces, semaphores): restored to `data` before every launch."""

    address: int
    data: bytes

    @property
    def end(self) -> int:
        return self.address + len(self.data)


class Kernel(Struct, frozen=True, array_like=True, tag="kernel"):
    """A kernel launch. `parameters` are (offset, bytes) pairs; one pair with offset -1 is an opaque buffer."""

    image: int
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    parameters: Annotated[tuple[tuple[int, bytes], ...], Meta(max_length=MAX_PAIRS)]
    cluster: tuple[int, int, int] = (0, 0, 0)
    cooperative: bool = False
    carveout: int = -1  # preferred shared memory in per cent; -1: the driver's choice
    scheduling: int = 0  # of clusters: CUclusterSchedulingPolicy, 0: the driver's choice; Triton asks for 1 (spread)


class Memset(Struct, frozen=True, array_like=True, tag="memset"):
    address: int
    pitch: int
    value: int
    element: int
    width: int  # elements
    height: int


class Copy(Struct, frozen=True, array_like=True, tag="copy"):
    """Device to device: `height` rows of `width` bytes, pitches in bytes."""

    target: int
    target_pitch: int
    source: int
    source_pitch: int
    width: int
    height: int


class Empty(Struct, frozen=True, array_like=True, tag="empty"):
    """Joins dependencies, does nothing."""


Work = Kernel | Memset | Copy | Empty


class Node(Struct, frozen=True, array_like=True):
    """One node of a call. `after`: nodes of the same call it depends on, all smaller than its own index; `early`: those of `after`
    whose edge is programmatic (it may start before they end)."""

    call: int
    work: Work
    after: Annotated[tuple[int, ...], Meta(max_length=MAX_EDGES)]
    early: Annotated[tuple[int, ...], Meta(max_length=MAX_EDGES)] = ()


class Plan(Struct, frozen=True, omit_defaults=True):
    """`sets` is the address of set 0. `segments`: all memory that was allocated while the case was captured or lived on from before,
    the sets included. `results`: for each call, where each fresh output lies (contiguous, in the order of Layout.outputs).
    `prepare`: nodes of another phase, replayed untimed before a launch, on weights alone; they refer to each other, never to `nodes`."""

    version: int
    case: str
    calls: int
    sets: int
    images: Annotated[tuple[bytes, ...], Meta(max_length=MAX_IMAGES)]
    nodes: Annotated[tuple[Node, ...], Meta(max_length=MAX_NODES)]
    segments: Annotated[tuple[Segment, ...], Meta(max_length=MAX_SEGMENTS)]
    results: Annotated[tuple[Annotated[tuple[Segment, ...], Meta(max_length=MAX_RESULTS)], ...], Meta(max_length=MAX_CALLS)]
    blocks: Annotated[tuple[Block, ...], Meta(max_length=MAX_SEGMENTS)]
    prepare: Annotated[tuple[Node, ...], Meta(max_length=MAX_NODES)] = ()

    def by_call(self) -> tuple[tuple[int, ...], ...]:
        """The nodes of every call."""
        return _by_call(self.nodes, self.calls)

    def of_call(self, call: int) -> tuple[int, ...]:
        return tuple(i for i, node in enumerate(self.nodes) if node.call == call)

    def uneven(self) -> int | None:
        """The first call that does not launch what call 0 does (kernels, grids, sizes, edges; addresses aside), or None."""
        phases = (self.nodes, self.prepare)
        shapes = list(zip(*(_shapes(nodes, self.calls) for nodes in phases), strict=True))
        return next((call for call, shape in enumerate(shapes) if shape != shapes[0]), None)

    def kernels(self) -> tuple[Kernel, ...]:
        """Of both phases."""
        return tuple(n.work for n in (*self.nodes, *self.prepare) if isinstance(n.work, Kernel))

    def signature(self, exact_scalars: bool = False) -> str:
        """Hash of what one call launches, less memory: images, names, grids, blocks, sizes, edges. Equal for two captures of one kernel.

        All calls count; `exact_scalars` adds parameter bytes that are not addresses inside the arena's segments.
        """
        digest = hashlib.sha256()
        for image in self.images:
            digest.update(code_hash(image).encode())
        for node in self.nodes:
            digest.update(repr((node.call, node.after, node.early, _shape(node.work, self if exact_scalars else None))).encode())
        for node in self.prepare:
            shape = _shape(node.work, self if exact_scalars else None)
            digest.update(repr(("prepare", node.call, node.after, node.early, shape)).encode())
        return digest.hexdigest()


def _by_call(nodes: tuple[Node, ...], calls: int) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in range(calls)]
    for index, node in enumerate(nodes):
        found[node.call].append(index)
    return tuple(tuple(members) for members in found)


def _shapes(nodes: tuple[Node, ...], calls: int) -> Iterator[tuple[object, ...]]:
    """For each call what it launches in a phase, addresses aside."""
    for members in _by_call(nodes, calls):
        place = {index: i for i, index in enumerate(members)}
        mine = (nodes[i] for i in members)
        yield tuple((_shape(n.work, None), tuple(place[i] for i in n.after), tuple(place[i] for i in n.early)) for n in mine)


def _shape(work: Work, plan: Plan | None) -> tuple[object, ...]:
    if isinstance(work, Kernel):
        sizes = tuple((at, len(data) if plan is None else _scalar(plan, data)) for at, data in work.parameters)
        launch = (work.grid, work.block, work.shared, work.cluster, work.cooperative, work.carveout, work.scheduling)
        return ("kernel", work.image, work.name, launch, sizes)
    if isinstance(work, Memset):
        return ("memset", work.value, work.element, work.width, work.height)
    if isinstance(work, Copy):
        return ("copy", work.width, work.height)
    return ("empty",)


def _scalar(plan: Plan, data: bytes) -> object:
    """A parameter, or its size when it is an address of the plan's memory or opaque."""
    if len(data) > 8:
        return len(data)
    value = int.from_bytes(data, "little")
    return 8 if len(data) == 8 and inside(plan.segments, value, 1) else data


def encode(plan: Plan) -> bytes:
    return msgspec.msgpack.encode(plan)


def decode(data: bytes) -> Plan:
    """The plan in `data`, checked. PlanError for anything else."""
    if len(data) > MAX_BYTES:
        raise PlanError(f"{len(data)} bytes; a plan may have {MAX_BYTES}")
    try:
        plan = msgspec.msgpack.decode(data, type=Plan)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PlanError(f"not a plan: {error}") from None
    check(plan)
    return plan


def check(plan: Plan) -> None:
    """PlanError when the plan is too large, refers to what is not there, or touches memory outside its segments."""
    counts = (
        (len(plan.images), MAX_IMAGES, "images"),
        (len(plan.nodes) + len(plan.prepare), MAX_NODES, "nodes"),
        (len(plan.segments), MAX_SEGMENTS, "segments"),
        (len(plan.blocks), MAX_SEGMENTS, "blocks"),
        (plan.calls, MAX_CALLS, "calls"),
    )
    if plan.version != VERSION:
        raise PlanError(f"version {plan.version}, known is {VERSION}")
    if large := next((f"{n} {what}; a plan may have {most}" for n, most, what in counts if n > most), ""):
        raise PlanError(large)
    if plan.calls < 1 or len(plan.results) != plan.calls:
        raise PlanError(f"{plan.calls} calls, and results of {len(plan.results)}")
    _check_memory(plan)
    for index, node in enumerate(plan.nodes):
        if why := _wrong(plan, plan.nodes, index, node):
            raise PlanError(f"node {index}: {why}")
    for index, node in enumerate(plan.prepare):
        if why := _wrong(plan, plan.prepare, index, node):
            raise PlanError(f"node {index} of `prepare`: {why}")


def _check_memory(plan: Plan) -> None:
    _ordered(plan.segments, "segments")
    _ordered(plan.blocks, "blocks")
    results = [r for call in plan.results for r in call if r.size]
    _ordered(tuple(sorted(results, key=lambda r: r.address)), "results")
    for what in (*results, *(Segment(b.address, len(b.data)) for b in plan.blocks)):
        if not inside(plan.segments, what.address, what.size):
            raise PlanError(f"memory at {what.address:#x} is in no segment")
    starts = [b.address for b in plan.blocks]
    for result in results:
        at = bisect_right(starts, result.address)
        near = plan.blocks[max(0, at - 1) : at + 1]
        if any(b.address < result.end and result.address < b.end for b in near):
            raise PlanError("a result lies in memory that is restored")


def _ordered(parts: tuple[Segment, ...] | tuple[Block, ...], what: str) -> None:
    """Sorted by address, none empty, none overlapping, all below 2**48."""
    end = 0
    for part in parts:
        if part.address < end or part.end <= part.address or part.end >= 1 << 48:
            raise PlanError(f"{what} overlap or are out of order at {part.address:#x}")
        end = part.end


def inside(segments: tuple[Segment, ...], at: int, size: int) -> bool:
    """Whether [at, at + size) lies in segments that touch each other. `segments` are sorted."""
    index = bisect_right(segments, at, key=lambda s: s.address) - 1
    end = at + max(size, 1)
    while 0 <= index < len(segments) and segments[index].address <= at < segments[index].end:
        at = segments[index].end
        if at >= end:
            return True
        index += 1
    return False


def _wrong(plan: Plan, phase: tuple[Node, ...], index: int, node: Node) -> str:
    if not 0 <= node.call < plan.calls:
        return f"call {node.call} of {plan.calls}"
    if any(not 0 <= before < index for before in node.after):
        return "depends on a node that does not come before it"
    if any(phase[before].call != node.call for before in node.after):
        return "depends on a node of another call"
    if not set(node.early) <= set(node.after):
        return "a programmatic edge that is no edge"
    work = node.work
    if isinstance(work, Kernel):
        return _wrong_kernel(plan, work)
    if min(_numbers(work), default=0) < 0:
        return "a negative number"
    spans = _spans(work)
    return "" if all(inside(plan.segments, at, size) for at, size in spans) else "touches memory that is in no segment"


def _numbers(work: Memset | Copy | Empty) -> tuple[int, ...]:
    if isinstance(work, Memset):
        return (work.address, work.pitch, work.value, work.element, work.width, work.height)
    return (work.target_pitch, work.source_pitch, work.width, work.height) if isinstance(work, Copy) else ()


def _spans(work: Memset | Copy | Empty) -> tuple[tuple[int, int], ...]:
    if isinstance(work, Memset):
        return ((work.address, _extent(work.pitch, work.width * work.element, work.height)),)
    if isinstance(work, Copy):
        return (
            (work.target, _extent(work.target_pitch, work.width, work.height)),
            (work.source, _extent(work.source_pitch, work.width, work.height)),
        )
    return ()


def _extent(pitch: int, width: int, height: int) -> int:
    return max(height - 1, 0) * max(pitch, width) + width


def _wrong_kernel(plan: Plan, work: Kernel) -> str:
    if not 0 <= work.image < len(plan.images):
        return f"image {work.image} of {len(plan.images)}"
    if work.name.encode() not in plan.images[work.image]:
        return f"its image has no kernel `{work.name}`"
    if sum(len(data) for _, data in work.parameters) > MAX_PARAMETERS:
        return "too many bytes of parameters"
    if not 0 <= work.scheduling <= 2 or not -1 <= work.carveout <= 100:
        return "a scheduling policy or carveout that does not exist"
    if any(offset < -1 or offset > MAX_PARAMETERS for offset, _ in work.parameters):
        return "a parameter at an offset that no kernel has"
    grid = all(1 <= n <= most for n, most in zip(work.grid, MAX_GRID, strict=True))
    if not grid or min(work.block) < 1 or max(work.block) > 1024 or not 0 <= work.shared <= 1 << 20:
        return "a grid, block or shared memory that no device has"
    return ""
