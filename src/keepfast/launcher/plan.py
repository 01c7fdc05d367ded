"""A launch plan: what a captured stream does, as plain data with a version.

Written by the untrusted capture, read by the trusted launcher, so reading is strict: sizes are capped, references hold, and
memory lies in known segments. Must not know CUDA.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import Struct

VERSION = 1
MAX_BYTES = 256 << 20
MAX_NODES = 20_000
MAX_IMAGES = 64
MAX_PARAMETERS = 4096  # bytes
MAX_SEGMENTS = 4096


class PlanError(Exception):
    """Why this is no plan, as a sentence."""


class Segment(Struct, frozen=True, array_like=True):
    """Device memory the plan may touch."""

    address: int
    size: int


class Kernel(Struct, frozen=True, array_like=True, tag="kernel"):
    """A kernel launch. `parameters` are (offset, bytes) pairs; one pair with offset -1 is an opaque buffer."""

    image: int
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    parameters: tuple[tuple[int, bytes], ...]
    cluster: tuple[int, int, int] = (0, 0, 0)
    cooperative: bool = False


class Memset(Struct, frozen=True, array_like=True, tag="memset"):
    address: int
    pitch: int
    value: int
    element: int
    width: int
    height: int


class Node(Struct, frozen=True, array_like=True):
    """One node of a call. `after`: indices of the nodes of the same call it depends on, all smaller than its own."""

    call: int
    work: Kernel | Memset
    after: tuple[int, ...]


class Plan(Struct, frozen=True):
    version: int
    images: tuple[bytes, ...]
    nodes: tuple[Node, ...]
    segments: tuple[Segment, ...]
    calls: int

    def of_call(self, call: int) -> tuple[int, ...]:
        return tuple(i for i, node in enumerate(self.nodes) if node.call == call)

    def signature(self) -> str:
        """Hash of what the plan launches, less memory: images, names, grids, blocks, sizes. Equal for two captures of one kernel."""
        digest = hashlib.sha256()
        for image in self.images:
            digest.update(hashlib.sha256(image).digest())
        for node in self.nodes:
            digest.update(repr((node.call, node.after, _shape(node.work))).encode())
        return digest.hexdigest()


def _shape(work: Kernel | Memset) -> tuple[object, ...]:
    if isinstance(work, Kernel):
        sizes = tuple((at, len(data)) for at, data in work.parameters)
        return ("kernel", work.image, work.name, work.grid, work.block, work.shared, work.cluster, work.cooperative, sizes)
    return ("memset", work.value, work.element, work.width, work.height)


def encode(plan: Plan) -> bytes:
    return msgspec.msgpack.encode(plan)


def decode(data: bytes) -> Plan:
    """The plan in `data`, checked. PlanError for anything else."""
    if len(data) > MAX_BYTES:
        raise PlanError(f"{len(data)} bytes; a plan may have {MAX_BYTES}")
    try:
        plan = msgspec.msgpack.decode(data, type=Plan)
    except msgspec.DecodeError as error:
        raise PlanError(f"not a plan: {error}") from None
    check(plan)
    return plan


def check(plan: Plan) -> None:
    """PlanError when the plan is too large, refers to what is not there, or touches memory outside its segments."""
    counts = (
        (len(plan.images), MAX_IMAGES, "images"),
        (len(plan.nodes), MAX_NODES, "nodes"),
        (len(plan.segments), MAX_SEGMENTS, "segments"),
    )
    if plan.version != VERSION:
        raise PlanError(f"version {plan.version}, known is {VERSION}")
    if large := next((f"{n} {what}; a plan may have {most}" for n, most, what in counts if n > most), ""):
        raise PlanError(large)
    for index, node in enumerate(plan.nodes):
        if why := _wrong(plan, index, node):
            raise PlanError(f"node {index}: {why}")


def _wrong(plan: Plan, index: int, node: Node) -> str:
    if not 0 <= node.call < plan.calls:
        return f"call {node.call} of {plan.calls}"
    if any(not 0 <= before < index for before in node.after):
        return "depends on a node that does not come before it"
    if any(plan.nodes[before].call != node.call for before in node.after):
        return "depends on a node of another call"
    work = node.work
    if isinstance(work, Kernel):
        return _wrong_kernel(plan, work)
    size = max(work.pitch, work.width * work.element) * max(work.height, 1)
    return "" if _inside(plan, work.address, size) else "touches memory that is in no segment"


def _wrong_kernel(plan: Plan, work: Kernel) -> str:
    if not 0 <= work.image < len(plan.images):
        return f"image {work.image} of {len(plan.images)}"
    if work.name.encode() not in plan.images[work.image]:
        return f"its image has no kernel `{work.name}`"
    if sum(len(data) for _, data in work.parameters) > MAX_PARAMETERS:
        return "too many bytes of parameters"
    if min(*work.grid, *work.block) < 1 or max(work.block) > 1024 or not 0 <= work.shared <= 1 << 20:
        return "a grid, block or shared memory that no device has"
    return ""


def _inside(plan: Plan, at: int, size: int) -> bool:
    return any(s.address <= at and at + size <= s.address + s.size for s in plan.segments)
