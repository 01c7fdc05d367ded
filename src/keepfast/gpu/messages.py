"""What the judge says to the three GPU processes and what they answer: records, and how they travel.

    capture worker   untrusted, one candidate: Warm -> Ready, Capture -> Captured, then it is killed
    launcher         trusted, one round: Open -> Opened, then Run, Audit, Time, Solo, Profile, Wind in any order, Close
    oracle           trusted, the human's reference.py, lives as long as the judge: Describe, Fill, Ask, Mutate, Measure

Records to and from trusted processes travel as msgpack in a memfd (`send`, `receive`). What a capture worker says is one plain
frame within the wire's caps (`wire.send`), and its plans are in memfds that the judge made.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from socket import socket
from typing import TypeVar

import msgspec
from msgspec import Struct

from keepfast import wire
from keepfast.gpu.layout import Layout

MAX_RECORD = 64 << 20
T = TypeVar("T")

# ------------------------------------------------------------------------------------------------ capture worker


class Warm(Struct, frozen=True, tag="warm"):
    """First message. Get ready without any code of a candidate: imports, context, arena. `libraries`: modules to import (torch, triton)."""

    arena: int  # base address drawn by the judge, a multiple of 32 MiB
    arena_bytes: int  # of addresses; memory is mapped as it is used
    arena_library: str  # path of arena.so
    device: int  # CUDA index inside the worker's view
    libraries: tuple[str, ...]
    max_bytes: int  # of device memory that the worker may map


class CaseWork(Struct, frozen=True):
    layout: Layout
    calls: int  # K: capture so many calls, one a set
    pins: tuple[tuple[str, int], ...] = ()  # autotuned kernel -> index of its configuration
    sample: int = 0  # bytes of a set's image that every set is filled with, so that indices are valid; 0: zeros


class Capture(Struct, frozen=True, tag="capture"):
    """Second message, with descriptors: the files (msgpack of ((path, bytes), ...)), a shared object when `library`, one memfd of
    plan.MAX_BYTES a case for the plans, then one with the sample of each case that has one. Travels as a memfd record, because
    layouts are large; the judge is the trusted side."""

    language: str  # triton | cute | torch | cuda
    entry_path: str
    entry_symbol: str
    library: bool  # a shared object exporting `keepfast_call` (C ABI) or, for `torch`, an extension to load first
    files_bytes: int
    cases: tuple[CaseWork, ...]
    path: tuple[str, ...] = ()  # folders of the tree to put on sys.path, relative to it
    prepare: str = ""  # what a `prepare` beside the entry is: weights, a phase of its own; step, part of a call; "": not called


class CapturedCase(Struct, frozen=True):
    case: str
    plan_bytes: int  # in its memfd
    host_us: float  # of one call of the host code, when warm
    ir_bytes: int = 0  # behind the plan: what Triton's images in it are said to be made of (capture/handover)


class Captured(Struct, frozen=True):
    """What a worker answers to Capture. `error`: "" or one of CAPTURE_ERRORS; `detail` one sentence, names file and line where it can."""

    error: str = ""
    detail: str = ""
    case: str = ""  # where it failed
    cases: tuple[CapturedCase, ...] = ()
    autotuned: tuple[tuple[str, tuple[str, ...]], ...] = ()  # kernel -> its configurations in words
    versions: tuple[tuple[str, str], ...] = ()  # torch, triton, cutlass, cuda driver as seen there


CAPTURE_ERRORS = {
    "import": "the file could not be imported",
    "compile": "a kernel does not compile",
    "raised": "the host code raised",
    "result": "what it returned is not what the signature says",
    "graph": "cannot be captured in a CUDA graph: it synchronises, allocates outside the pool or reads results on the host",
    "not-a-plan": "captured work that cannot be replayed",
    "memory": "more device memory than it may have",
    "fault": "a kernel faulted",
    "nothing": "launched nothing",
}


class Ready(Struct, frozen=True):
    ok: bool
    detail: str = ""  # why not: "arena" when the address was taken (another worker, another base), else a sentence
    seconds: float = 0.0


# ------------------------------------------------------------------------------------------------ launcher


class Bank(Struct, frozen=True):
    """Contents to draw from: `draws` images of a set, `stride` bytes apart, in one descriptor."""

    kind: str  # gpu: an exported physical allocation; host: a memfd
    draws: int
    stride: int
    size: int  # bytes of the allocation


class Tolerance(Struct, frozen=True):
    """What two right answers may differ by, for one result: relative to the RMS of each row (last axis)."""

    dtype: str
    columns: int  # elements of a row; a result is compared whole when it is 1-d
    rms: float
    worst: float


class Open(Struct, frozen=True, tag="open"):
    """A case with one or two arms. Descriptors: the bank, the plan of each arm (sealed memfds), the audit memory when `audit` is host."""

    layout: Layout
    arena_bytes: int
    arenas: tuple[int, ...]  # base of each arm's arena; its plan must lie inside
    plan_bytes: tuple[int, ...]
    bank: Bank
    tolerances: tuple[Tolerance, ...]  # one a result; rms and worst 0: bit-identical
    seed: int  # for orders and nonces of the launcher's own
    audit: str = "gpu"  # kind of the audit memory: "gpu", exported by the launcher, or "host", a memfd of the judge


class KernelFacts(Struct, frozen=True):
    name: str
    launches: int  # in one call
    registers: int
    spill_bytes: int  # local memory a thread
    shared_bytes: int  # static and dynamic
    threads: int  # of a block
    share: float = 0.0  # of the call's GPU time; 0 until profiled


class Fault(Struct, frozen=True):
    """Why a launcher could not go on. `arm` -1: its own fault (machine), else the arm that ran."""

    kind: str  # fault | not-a-plan | memory | collision | launch | machine
    detail: str
    arm: int = -1


class Opened(Struct, frozen=True):
    """One descriptor comes with it when the audit memory is `gpu`."""

    kernels: tuple[tuple[KernelFacts, ...], ...]  # of each arm
    audit_bytes: int
    l2_bytes: int
    ready_s: float
    fault: Fault | None = None


class Run(Struct, frozen=True, tag="run"):
    """Launch one arm once on contents of `nonce`, outputs poisoned before.

    verbatim   set i holds draw i % draws of the bank as it is, instead of a mix
    alone      each call in a graph of its own, one after the other, all other outputs still poisoned (or done before)
    some       above 0: a chain of so many of the calls, drawn anew; the others must stay as they were given
    keep       remember the results of all calls
    against    compare with what was kept
    """

    arm: int
    nonce: int
    calls: int
    verbatim: bool = False
    alone: bool = False
    some: int = 0
    keep: bool = False
    against: bool = False


class Ran(Struct, frozen=True):
    ms: float
    unwritten: tuple[int, ...] = ()  # sets in which some result kept poison, of those that were launched; `odd` too
    early: tuple[int, ...] = ()  # with `alone`: sets whose results were touched before their own call; with `some`: without it
    inputs: tuple[int, ...] = ()  # sets whose arguments, apart from the written ones, changed
    odd: tuple[int, ...] = ()  # with `against`: sets that differ beyond the tolerance
    identical: bool = True  # with `against`: bit for bit
    fault: Fault | None = None


class Audit(Struct, frozen=True, tag="audit"):
    """Put call `index` of the last Run of `arm` into the audit memory, as layout.audit says."""

    arm: int
    index: int


class Audited(Struct, frozen=True):
    fault: Fault | None = None


class Time(Struct, frozen=True, tag="time"):
    """One round of subject (arm 0) against opponent (arm 1): `blocks` times ABBA or BAAB after one that warms, launches of `calls` calls.
    One timed launch of the subject, drawn, leaves call `audit` in the audit memory. `some` above 0: between two blocks, drawn, comes a
    half that looks like any other and is not timed; one launch of the subject in it has only so many of the calls."""

    blocks: int
    calls: int
    audit: int
    some: int = 0


class Odd(Struct, frozen=True):
    """A timed launch in which a set differed beyond the tolerance: to be run again by nonce and judged."""

    nonce: int
    index: int


class Timed(Struct, frozen=True):
    d: float = 0.0  # median over blocks of ln(subject / opponent)
    pairs: tuple[float, ...] = ()
    subject_ms: float = 0.0  # of a launch, median
    opponent_ms: float = 0.0
    calls: int = 0
    launches: int = 0
    odd: tuple[Odd, ...] = ()
    differing: int = 0  # sets over all launches that were not bit-identical
    unwritten: int = 0  # sets over all launches in which a subject's result kept poison
    inputs: int = 0  # sets whose arguments were changed
    early: int = 0  # sets whose call was not launched, and whose results were touched
    sentinel_ms: tuple[float, ...] = ()  # min, median, max
    host_ratio: float = 1.0  # event time over host clock, of whole slots
    seconds: float = 0.0
    fault: Fault | None = None


class Solo(Struct, frozen=True, tag="solo"):
    """Time one arm alone: median ms of `launches` launches of `calls` calls, contents refreshed, L2 washed."""

    arm: int
    calls: int
    launches: int


class Soloed(Struct, frozen=True):
    ms: float = 0.0
    fault: Fault | None = None


class Profile(Struct, frozen=True, tag="profile"):
    """Share of the GPU time of one call for each kernel of an arm, in a chain of calls with events between the nodes."""

    arm: int


class Profiled(Struct, frozen=True):
    """`call_us`: of all nodes of a call together, as they were watched. `room_us`: what the same chain leaves room for when nothing is
    watched; more than that was not there."""

    kernels: tuple[KernelFacts, ...] = ()
    call_us: float = 0.0
    room_us: float = 0.0
    fault: Fault | None = None


class Wind(Struct, frozen=True, tag="wind"):
    """Look at what calls do to the blocks of one arm, wind what counts them forward, overwrite what else changes, and launch all calls
    on the contents of `nonce`, whose results are kept, again and again. Ends with the first launch that goes wrong."""

    arm: int
    nonce: int
    calls: int


class Ahead(Struct, frozen=True):
    """One of these launches. `wound`: by how many calls; 0: what changes otherwise was overwritten."""

    wound: int
    ran: Ran


class Wound(Struct, frozen=True):
    """Words of 32 bits that calls change: by the same step in every call; so that nothing but the number of calls tells their value, and
    not by steps; in any other way."""

    counting: int = 0
    numbered: int = 0
    other: int = 0
    ahead: tuple[Ahead, ...] = ()
    fault: Fault | None = None


class Bench(Struct, frozen=True, tag="bench"):
    """Without a case: launch latency and the like, for `calibrate`."""


class Benched(Struct, frozen=True):
    numbers: tuple[tuple[str, float], ...] = ()  # e.g. ("graph_node_us", 1.3)
    fault: Fault | None = None


class Close(Struct, frozen=True, tag="close"):
    """Give the case's memory back; the next message is another Open, or the channel closes."""


Order = Open | Run | Audit | Time | Solo | Profile | Wind | Bench | Close


# ------------------------------------------------------------------------------------------------ oracle


class Describe(Struct, frozen=True, tag="describe"):
    """Layout of each case named (all when empty), from one throwaway draw."""

    cases: tuple[str, ...] = ()


class Described(Struct, frozen=True):
    """`error`: a TaskError in words (what, where, next step), else ""."""

    layouts: tuple[Layout, ...] = ()
    limits: tuple[tuple[float, float], ...] = ()  # bytes and flops of a call, of limit(case, inputs); 0: not said
    results: tuple[tuple[Tolerance, ...], ...] = ()  # dtype and columns of each result; budgets are 0 here
    has_compare: bool = False
    error: str = ""
    where: str = ""
    next_step: str = ""


class Fill(Struct, frozen=True, tag="fill"):
    """Draw contents: `seeds` has one entry a draw, 128 bits each in four words. Answer: Filled with one descriptor. `meta`: the seed of
    what the host may read, which is the same in all draws."""

    case: str
    seeds: tuple[tuple[int, ...], ...]
    kind: str = "gpu"  # or host
    meta: tuple[int, ...] = ()


class Filled(Struct, frozen=True):
    bank: Bank | None = None
    error: str = ""
    where: str = ""
    next_step: str = ""


class Ask(Struct, frozen=True, tag="ask"):
    """Is the call in the audit memory right? Descriptor: the audit memory. `earlier`: also hold it against these draws of the case's
    bank, to tell an old answer from a wrong one."""

    case: str
    kind: str  # gpu | host
    size: int


class Answer(Struct, frozen=True):
    wrong: str = ""  # sentence: which result, first wrong element, got, expected; or what compare() said
    stale: bool = False  # right for another draw of the bank that was filled last for this case
    budgets: tuple[Tolerance, ...] = ()  # of each result, for comparisons on the device
    error: str = ""
    where: str = ""
    next_step: str = ""


class Mutate(Struct, frozen=True, tag="mutate"):
    """Lint the task: sanity, then mutants of the reference on the cases."""


class Mutant(Struct, frozen=True):
    name: str
    case: str
    killed: bool


class Mutated(Struct, frozen=True):
    mutants: tuple[Mutant, ...] = ()
    error: str = ""
    where: str = ""
    next_step: str = ""


class Measure(Struct, frozen=True, tag="measure"):
    """Ceilings of this card that need a library: copy and read bandwidth, matrix rates per type."""


class Measured(Struct, frozen=True):
    numbers: tuple[tuple[str, float], ...] = ()  # copy_GBps, read_GBps, write_GBps, bfloat16_TFLOPs, float16_TFLOPs, tf32_TFLOPs, ...
    error: str = ""
    where: str = ""
    next_step: str = ""


Question = Describe | Fill | Ask | Mutate | Measure


# ------------------------------------------------------------------------------------------------ how they travel


def send(channel: socket, record: Struct, fds: Sequence[int] = (), *, timeout_s: float = 30.0) -> None:
    """A record to a trusted process (or from the judge to any): msgpack in a memfd, which goes before `fds`."""
    data = msgspec.msgpack.encode(record)
    fd = wire.memfd("record", len(data))
    try:
        with mmap.mmap(fd, len(data)) as memory:
            memory[:] = data
        wire.send(channel, {"bytes": len(data)}, (fd, *fds), timeout_s=timeout_s)
    finally:
        os.close(fd)


def receive(channel: socket, kind: type[T], *, timeout_s: float) -> tuple[T, list[int]]:
    """The next record from a trusted process, and the descriptors after it, which the caller closes. WireError when it is none."""
    header, fds = wire.receive(channel, timeout_s=timeout_s)
    try:
        size = header.get("bytes")
        if not isinstance(size, int) or not 0 < size <= MAX_RECORD or not fds:
            raise wire.WireError("a frame without a record")
        wire.check(fds[0], size)
        with mmap.mmap(fds[0], size, prot=mmap.PROT_READ) as memory:
            return msgspec.msgpack.decode(memory[:], type=kind), fds[1:]
    except (wire.WireError, msgspec.DecodeError, RecursionError) as error:
        for fd in fds[1:]:
            os.close(fd)
        raise wire.WireError(f"not a record: {error}") from None
    finally:
        if fds:
            os.close(fds[0])
