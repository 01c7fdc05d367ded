"""What the kernels of contents.cu read: the parts of a set, the results of a call, the blocks of a plan, the counters of a slot.

The structures are those of contents.cu, field by field. Must not know the driver.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from keepfast.gpu.layout import Layout, Tensor, audit, contiguous, up
from keepfast.gpu.messages import Tolerance
from keepfast.gpu.plan import Block as Saved
from keepfast.gpu.plan import Plan
from keepfast.launcher.faults import Failed, asked

POISON, MIX, WHOLE = range(3)
GAP, INPUT, WRITTEN, SCRATCH = 1, 2, 4, 8
KINDS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")
EXACT = len(KINDS)
GRANULE = 16
BLOCK_PIECE = 1 << 20
MOST_TENSOR = 1 << 36  # bytes: granules are counted in 32 bits

_u64, _u32, _f64, _pointer = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_double, ctypes.c_void_p


class Part(ctypes.Structure):
    _fields_ = [("offset", _u64), ("bytes", _u64), ("row", _u64), ("mode", _u32), ("owner", _u32)]


class Source(ctypes.Structure):
    _fields_ = [
        *((name, _pointer) for name in ("bank", "parts")),
        *((name, _u64) for name in ("stride", "set_bytes", "nonce")),
        *((name, _u32) for name in ("draws", "pattern", "verbatim", "first")),
    ]


class Result(ctypes.Structure):
    _fields_ = [
        *((name, _u64) for name in ("bytes", "place", "columns")),
        *((name, _f64) for name in ("rms", "worst")),
        *((name, _u32) for name in ("kind", "fresh")),
    ]


class Block(ctypes.Structure):
    _fields_ = [(name, _u64) for name in ("address", "bytes", "place")]


def packed(rows: Sequence[ctypes.Structure]) -> bytes:
    return b"".join(bytes(row) for row in rows)


# --------------------------------------------------------------------------------------------- a set


def parts(layout: Layout) -> tuple[Part, ...]:
    """Every byte of a set once: its tensors in address order, and the gaps between them. Failed ("machine") for no layout."""
    found: list[Part] = []
    end = 0
    for name, tensor in sorted(((g.name, g.tensor) for g in layout.given if g.tensor is not None), key=lambda p: p[1].offset):
        if tensor.nbytes == 0:
            continue
        aligned = tensor.offset % GRANULE == 0 and 0 < tensor.nbytes < MOST_TENSOR
        asked(aligned and end <= tensor.offset, f"layout of {layout.case}: `{name}` overlaps another tensor, or is not aligned")
        found += [*_gap(end, tensor.offset), _tensor(tensor)]
        end = tensor.offset + tensor.nbytes
    asked(end <= layout.set_bytes and layout.set_bytes % GRANULE == 0, f"layout of {layout.case}: a set of {layout.set_bytes} bytes")
    return (*found, *_gap(end, layout.set_bytes))


def only(rows: Sequence[Part], kept: frozenset[int]) -> tuple[Part, ...]:
    """The same parts, with poison in all that do not begin at one of these offsets."""
    return tuple(Part(p.offset, p.bytes, p.row, p.mode if p.offset in kept else POISON, p.owner) for p in rows)


def _gap(low: int, high: int) -> list[Part]:
    return [Part(low, high - low, 0, POISON, GAP)] if high > low else []


def _tensor(tensor: Tensor) -> Part:
    if tensor.role == "scratch":
        return Part(tensor.offset, tensor.nbytes, 0, POISON, SCRATCH)
    row = _row(tensor)
    owner = WRITTEN if tensor.written else INPUT
    return Part(tensor.offset, tensor.nbytes, row // GRANULE, MIX if row else WHOLE, owner)


def _row(tensor: Tensor) -> int:
    """Bytes of a row that can be mixed by granules, or 0: the tensor is taken whole."""
    if tensor.refresh != "element" or tensor.role in ("index", "meta") or not tensor.shape or not _plain(tensor):
        return 0
    rows = math.prod(tensor.shape[:-1])
    width = tensor.nbytes // rows
    return width if width * rows == tensor.nbytes and width % GRANULE == 0 else 0


def _plain(tensor: Tensor) -> bool:
    """Contiguous; steps along axes of one element mean nothing."""
    pairs = zip(tensor.shape, tensor.strides, contiguous(tensor.shape), strict=True)
    return tensor.start == tensor.offset and all(n == 1 or stride == plain for n, stride, plain in pairs)


# --------------------------------------------------------------------------------------------- results


def results(layout: Layout, tolerances: Sequence[Tolerance]) -> tuple[tuple[Result, ...], int]:
    """One row a result, placed one after the other as they are kept; and the bytes kept of one call."""
    asked(len(tolerances) == len(layout.results), f"{len(tolerances)} tolerances for {len(layout.results)} results of {layout.case}")
    found: list[Result] = []
    at, written = 0, len(layout.written)
    for number, ((_, size), known) in enumerate(zip(layout.results, tolerances, strict=True)):
        kind = KINDS.index(known.dtype) if known.dtype in KINDS else EXACT
        found.append(Result(size, at, max(1, known.columns), known.rms, known.worst, kind, int(number >= written)))
        at += up(size, GRANULE)
    return tuple(found), at


def audited(layout: Layout, kept: Sequence[Result]) -> tuple[Result, ...]:
    """The same results, placed as in the audit memory."""
    places = audit(layout).results
    return tuple(Result(r.bytes, place, r.columns, r.rms, r.worst, r.kind, r.fresh) for r, place in zip(kept, places, strict=True))


def addresses(plan: Plan, layout: Layout, arm: int) -> np.ndarray:
    """Where each result of each call lies: an array of (calls, results). Failed ("not-a-plan") when that cannot be."""
    written = [g.tensor.offset for g in layout.written if g.tensor is not None]
    rows: list[list[int]] = []
    for call, outputs in enumerate(plan.results):
        if why := _unlike(plan, layout, call):
            raise Failed("not-a-plan", f"call {call}: {why}", arm)
        rows.append([plan.sets + call * layout.set_bytes + at for at in written] + [r.address for r in outputs])
    return np.array(rows, np.uint64).reshape(plan.calls, len(layout.results))


def _unlike(plan: Plan, layout: Layout, call: int) -> str:
    """Why the fresh outputs of a call are not those of the layout, or ""."""
    found, end = plan.results[call], plan.sets + plan.calls * layout.set_bytes
    if [r.size for r in found] != [o.nbytes for o in layout.outputs]:
        return f"outputs of {[r.size for r in found]} bytes, {[o.nbytes for o in layout.outputs]} are asked for"
    for result, output in zip(found, layout.outputs, strict=True):
        if result.size and result.address % max(1, output.nbytes // math.prod(output.shape)):
            return f"`{output.name}` is not aligned to its elements"
        if result.size and result.address < end and result.end > plan.sets:
            return f"`{output.name}` lies among the arguments"
    return ""


# --------------------------------------------------------------------------------------------- blocks


def blocks(saved: Sequence[Saved]) -> tuple[tuple[Block, ...], bytes]:
    """What to restore, in pieces of at most BLOCK_PIECE, and what they are restored to, one after the other."""
    rows: list[Block] = []
    store = bytearray()
    for block in saved:
        for at in range(0, len(block.data), BLOCK_PIECE):
            piece = block.data[at : at + BLOCK_PIECE]
            rows.append(Block(block.address + at, len(piece), len(store)))
            store += piece + bytes(-len(piece) % GRANULE)
    return tuple(rows), bytes(store)


# --------------------------------------------------------------------------------------------- counters


class Counts:
    """Layout of the counters of one launch: per call (and result), 32 bits each. They lie in private memory and are read as an array."""

    SECTIONS = ("inputs", "unwritten", "early", "odd", "differ")

    def __init__(self, calls: int, results: int) -> None:
        self.calls, self.results = calls, results
        self.words = up(calls * (4 + results), 128)

    @property
    def bytes(self) -> int:
        return 4 * self.words

    def offset(self, section: str) -> int:
        """Bytes from the start of a launch's counters."""
        return 4 * self.calls * self.SECTIONS.index(section)

    def read(self, words: np.ndarray, section: str) -> np.ndarray:
        """Of one launch: a count for each call."""
        at = self.offset(section) // 4
        if section != "differ":
            return words[at : at + self.calls]
        table = words[at : at + self.calls * self.results].reshape(self.calls, self.results)
        found: np.ndarray = table.sum(axis=1, dtype=np.uint64)
        return found
