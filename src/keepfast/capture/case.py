"""One case: sets filled, calls made until they are warm, then all of them captured, and what came of it as a plan.

Owns the order of things, and what of the memory goes into the plan. CUDA, the arena and the candidate's calls are handed in.
"""

from __future__ import annotations

import gc
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from keepfast.capture import tensors
from keepfast.capture.arena import Arena, Live
from keepfast.capture.calls import Calls, Work
from keepfast.capture.refusals import CALLING, CAPTURING, NotAPlan, Refused
from keepfast.gpu import plan as plans
from keepfast.gpu.driver import CudaError
from keepfast.gpu.layout import Layout
from keepfast.gpu.plan import Block, Empty, Kernel, Node, Plan, PlanError, Segment

WARM_CALLS = 3  # the second may still compile or choose: torch.compile, cuBLAS
TIMED_CALLS, TIMED_S = 20, 0.02
MAX_BLOCK_BYTES = 200 << 20
UNWRITTEN = b"\xff"  # no number in any floating type
SLACK = 32 << 20
T = TypeVar("T")


class Gpu(Protocol):
    """What talks to CUDA. CudaError when the driver refuses, which after a call of the candidate's is its fault."""

    stream: int

    def write(self, address: int, data: bytes) -> None: ...

    def copy(self, target: int, source: int, size: int) -> None: ...

    def clear(self, address: int, size: int) -> None: ...

    def read(self, address: int, size: int) -> bytes: ...

    def synchronise(self) -> None: ...

    def on_stream(self) -> AbstractContextManager[None]: ...

    def begin(self) -> None: ...

    def broken(self) -> bool:
        """Whether something has ended the capture that is running."""

    def note(self, call: int) -> int: ...

    def end(self) -> tuple[tuple[Node, ...], tuple[bytes, ...]]: ...


class Made(Struct, frozen=True):
    plan: Plan
    host_us: float


Guards = Callable[[str], AbstractContextManager[None]]
"""phase -> what a candidate's code runs inside; whatever it raises comes out as Refused."""


class Case:
    """`sample`: the image of a set that every set is filled with; zeros where it ends. `again` is asked once after the first call:
    True when the call must be made anew, because something was found that has to be held still (an autotuner)."""

    def __init__(self, gpu: Gpu, arena: Arena, guards: Guards, sample: bytes, again: Callable[[], bool]) -> None:
        self.gpu, self.arena, self.guards, self.sample, self.again = gpu, arena, guards, sample, again

    def place(self, layout: Layout, calls: int) -> Work:
        """Memory of all sets, filled."""
        self.arena.mark()  # gives back what earlier cases freed
        size = calls * layout.set_bytes
        sets = self.arena.block(max(size, 1))
        image = self.sample[: layout.set_bytes]
        self.gpu.clear(sets, max(size, 1))
        for i in range(calls):
            if i == 0 and image:
                self.gpu.write(sets, image)
            elif image:
                self.gpu.copy(sets + i * layout.set_bytes, sets, len(image))
        self.gpu.synchronise()
        return Work(layout, calls, sets, self.sample)

    def run(self, work: Work, calls: Calls) -> Made:
        """The plan of the case. Refused says why there is none."""
        try:
            host_us = self._warm(work, calls)
            return Made(self._capture(work, calls), host_us)
        except NotAPlan as error:
            raise Refused("not-a-plan", str(error)) from None
        finally:
            calls.drop()

    def release(self, work: Work) -> None:
        """Give the sets back, when nothing refers to them any more."""
        gc.collect()
        self.arena.free(work.sets)
        self.arena.epoch()

    # ------------------------------------------------------------------------------------------------ warm

    def _warm(self, work: Work, calls: Calls) -> float:
        """Host time of a call in us, after calls that compile and load what there is to compile and load."""
        self._call(work, calls)
        if self.again():
            self._call(work, calls)
        for _ in range(WARM_CALLS - 1):
            self._call(work, calls)
        times: list[int] = []
        end = time.monotonic() + TIMED_S
        while len(times) < TIMED_CALLS and (len(times) < 3 or time.monotonic() < end):
            times.append(self._call(work, calls))
        return statistics.median(times) / 1000

    def _call(self, work: Work, calls: Calls) -> int:
        """One call on set 0 as it was given, waited for: ns of its host code."""
        self._restore(work)
        with self.gpu.on_stream(), self.guards(CALLING):
            calls.prepare(0)
            value, ns = calls.launch(0)
        try:
            self.gpu.synchronise()
        except CudaError as error:
            raise Refused("fault", f"a kernel failed while the case was called to warm up: {error}") from None
        calls.settle(0, value, CALLING)
        del value
        calls.drop()
        self.arena.epoch()
        return ns

    def _restore(self, work: Work) -> None:
        """Put back what the last call wrote into its arguments, so that lengths and positions stay valid."""
        for given in work.layout.written:
            place = given.tensor
            if place is not None and (image := self.sample[place.offset : place.offset + place.nbytes]):
                self.gpu.write(work.sets + place.offset, image)

    # ------------------------------------------------------------------------------------------------ capture

    def _capture(self, work: Work, calls: Calls) -> Plan:
        gc.collect()
        self.arena.epoch()
        outputs = sum(-(-o.nbytes // 512) * 512 for o in work.layout.outputs)
        self.arena.reserve(work.calls * outputs + SLACK)  # not needed, but then little is mapped while the stream is captured
        self.arena.mark()
        old = self._contents(work, self.arena.live())
        results: list[tuple[Segment, ...]] = []
        with _no_garbage():
            before = self._prepared(work, calls)
            packed = frozenset(b.address for b in self.arena.live() if b.born)  # filled again for each launch: neither restored nor results
            self.gpu.begin()
            for number in range(work.calls):
                results.append(self._captured(number, calls))
            nodes, images = self.gpu.end()
        tensors.apart(results, work.layout)
        made = [b for b in self.arena.live() if b.born and b.address not in packed]
        blocks = (*old, *_fresh(made, results, sum(len(b.data) for b in old)))
        prepare, images = _with_images(images, *before)
        return _checked(
            Plan(
                version=plans.VERSION,
                case=work.layout.case,
                calls=work.calls,
                sets=work.sets,
                images=images,
                nodes=_working(nodes, work.calls),
                segments=self.arena.touched(),
                results=tuple(results),
                blocks=tuple(sorted(blocks, key=lambda b: b.address)),
                prepare=prepare,
            )
        )

    def _prepared(self, work: Work, calls: Calls) -> tuple[tuple[Node, ...], tuple[bytes, ...]]:
        """Capture `prepare` for the weights of every call, in a graph of its own: nodes and images. It may launch nothing."""
        if not calls.prepares:
            return (), ()
        self.gpu.begin()
        for number in range(work.calls):
            self._under_capture(partial(calls.prepare, number))
            self.gpu.note(number)
        return self.gpu.end()

    def _under_capture(self, call: Callable[[], T]) -> T:
        """What code of the candidate gives while the stream is captured."""
        try:
            with self.gpu.on_stream(), self.guards(CAPTURING):
                return call()
        except Refused as error:  # host code may answer a failing CUDA call with an exception of its own
            broken = error.error == "raised" and self.gpu.broken()
            raise Refused("graph" if broken else error.error, error.detail) from None

    def _captured(self, number: int, calls: Calls) -> tuple[Segment, ...]:
        """Capture one call: where its outputs lie."""
        value, _ = self._under_capture(partial(calls.launch, number))
        if not self.gpu.note(number):
            raise Refused("nothing", f"call {number} launched nothing")
        # No epoch: what a call frees stays its own. The launcher draws the order of calls, and a result of one must not lie where another
        # one, which may run after it, had something in between.
        return calls.settle(number, value, CAPTURING)

    def _contents(self, work: Work, live: Sequence[Live]) -> tuple[Block, ...]:
        """Blocks that lived before the capture, less the sets: constants, workspaces, semaphores."""
        kept = [b for b in live if b.address != work.sets]
        _cap(sum(b.size for b in kept))
        return tuple(Block(b.address, self.gpu.read(b.address, b.size)) for b in kept)


def _with_images(
    images: tuple[bytes, ...], nodes: tuple[Node, ...], others: tuple[bytes, ...]
) -> tuple[tuple[Node, ...], tuple[bytes, ...]]:
    """`nodes`, whose kernels are in `others`, and all images, those of the calls first."""
    known = list(dict.fromkeys((*images, *others)))
    place = [known.index(image) for image in others]
    moved = (n if not isinstance(n.work, Kernel) else replace(n, work=replace(n.work, image=place[n.work.image])) for n in nodes)
    return tuple(moved), tuple(known)


def _fresh(live: Sequence[Live], results: Sequence[tuple[Segment, ...]], bytes_before: int) -> tuple[Block, ...]:
    """Blocks of `live`, which were made by the captured calls, that live on without being results. Nothing has been written to them yet.

    Refused when a result lies in other memory, which was there before: nobody would know what it holds.
    """
    made = [r for call in results for r in call if r.size]
    taken = set()
    for result in made:
        home = _home(live, result)
        if home is None:
            raise Refused("result", f"expected memory allocated during the call, got memory that was there before ({result.address:#x})")
        taken.add(home.address)
    kept = [b for b in live if b.address not in taken]
    _cap(bytes_before + sum(b.size for b in kept))
    return tuple(Block(b.address, UNWRITTEN * b.size) for b in kept)  # not zeros: who needs those has to write them


def _home(live: Sequence[Live], result: Segment) -> Live | None:
    """The live block that a result lies in. `live` is sorted."""
    at = bisect_right(live, result.address, key=lambda b: b.address) - 1
    return live[at] if at >= 0 and result.end <= live[at].end else None


def _cap(size: int) -> None:
    if size > MAX_BLOCK_BYTES:
        what = f"{size >> 20} MiB of memory besides arguments and outputs live on between calls"
        raise Refused("memory", f"{what}; a plan can restore {MAX_BLOCK_BYTES >> 20} MiB")


def _working(nodes: tuple[Node, ...], calls: int) -> tuple[Node, ...]:
    """The nodes, when every call has one that does something."""
    busy = {node.call for node in nodes if not isinstance(node.work, Empty)}
    idle = next((c for c in range(calls) if c not in busy), None)
    if idle is not None:
        raise Refused("nothing", f"call {idle} launched nothing")
    return nodes


def _checked(plan: Plan) -> Plan:
    """The plan, as the launcher will take it."""
    try:
        plans.check(plan)
    except PlanError as error:
        raise Refused("not-a-plan", str(error)) from None
    return plan


@contextmanager
def _no_garbage() -> Iterator[None]:
    """No collector runs inside: what it frees would be freed in another call each time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
