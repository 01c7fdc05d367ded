"""Frames between the judge and its processes, and the memory they share.

Owns the frame format with its caps, sealed memfds, descriptions of tensors, and call tables. Whatever arrives is taken for
hostile: it either is a frame within the caps or it is a `WireError` that says why not, in a sentence.
Must not know who is at the other end, what a message means, tasks or verdicts.

    frame       u32 length (little-endian), then that many bytes of UTF-8 JSON, one object; descriptors by SCM_RIGHTS
    call table  u32 magic, columns, rows, 0; one u32 a column; rows x columns u64, eight-byte aligned
"""

from __future__ import annotations

import fcntl
import json
import math
import mmap
import os
import re
import socket
import stat
import struct
import time
from array import array
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np

MAX_BYTES = 65536
MAX_FDS = 64
MAX_DEPTH = 8
MAX_DIGITS = 20  # 2**64 - 1 has twenty
MAX_FLOAT = 32  # characters
MAX_DIMENSIONS = 32

TABLE_MAGIC = 0x4B465442
NULL = 2**64 - 1  # in a column of pointers

_FUTURE_WRITE = 0x0010  # F_SEAL_FUTURE_WRITE, Linux 5.1, not named by the fcntl module
_NO_RESIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
# Strings, closed or not, are skipped whole, so that this takes linear time whatever arrives.
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_NUMPY = ("float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


class WireError(Exception):
    """What arrived (or was to be sent) is not what it has to be. The text is a sentence without a full stop."""


class Closed(WireError):
    """The other end closed the channel, or ended."""


class TimedOut(WireError):
    """No whole frame in the time allowed."""


# --------------------------------------------------------------------------------------------- frames


def encode(header: Mapping[str, object]) -> bytes:
    """One frame. WireError for what JSON cannot hold, NaN and infinity included."""
    try:
        body = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise WireError(f"cannot be sent as JSON: {error}") from None
    return struct.pack("<I", len(body)) + body


def decode(body: bytes) -> dict[str, object]:
    """The object in a frame's body. WireError when it is not strict JSON within the caps."""
    _check_depth(body)
    try:
        text = body.decode("utf-8")
        found = json.loads(text, object_pairs_hook=_object, parse_int=_int, parse_float=_float, parse_constant=_refuse_constant)
        if "\\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except ValueError as error:
        raise WireError(f"the frame is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise WireError("the frame is not a JSON object")
    return found


def unframe(data: bytes) -> dict[str, object]:
    """The object of exactly one frame; WireError when there is less or more."""
    if len(data) < 4:
        raise WireError(f"{len(data)} bytes are not a frame")
    (length,) = struct.unpack_from("<I", data)
    if length != len(data) - 4:
        raise WireError(f"a frame of {length} bytes was announced, {len(data) - 4} came")
    return decode(data[4:])


def _check_depth(body: bytes) -> None:
    depth = 0
    for match in _BRACKET.finditer(body):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(match.group(), 0)
        if depth > MAX_DEPTH:
            raise WireError(f"the frame is nested deeper than {MAX_DEPTH}")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise WireError("the frame has a key twice")
    return found


def _int(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise WireError(f"the frame holds a number of more than {MAX_DIGITS} digits")
    return int(text)


def _float(text: str) -> float:
    if len(text) > MAX_FLOAT or not math.isfinite(float(text)):
        raise WireError("the frame holds a number that is too long or too large")
    return float(text)


def _refuse_constant(text: str) -> NoReturn:
    raise WireError(f"the frame holds {text}")


def send(sock: socket.socket, header: Mapping[str, object], fds: Sequence[int] = (), *, timeout_s: float = 30.0) -> None:
    """Send one frame. The descriptors stay open here. Closed or TimedOut when the other end does not take it."""
    data = memoryview(encode(header))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
    sock.settimeout(timeout_s)
    try:
        sent = sock.sendmsg([data], rights)
        if sent < len(data):  # a peer that has all of it may be gone already
            sock.sendall(data[sent:])
    except TimeoutError:
        raise TimedOut(f"the other end took nothing for {timeout_s:g} s") from None
    except (BrokenPipeError, ConnectionResetError):
        raise Closed("the other end closed the channel") from None


def receive(sock: socket.socket, *, timeout_s: float, max_bytes: int = MAX_BYTES) -> tuple[dict[str, object], list[int]]:
    """One frame and its descriptors (at most MAX_FDS), which the caller closes. On any error they are closed here.

    The time allowed is for the whole frame, so that a peer which drips bytes gains nothing.
    """
    deadline = time.monotonic() + timeout_s
    fds: list[int] = []
    with ExitStack() as stack:
        stack.callback(_close_all, fds)
        (length,) = struct.unpack("<I", _exactly(sock, 4, deadline, fds))
        if not 0 < length <= max_bytes:
            raise WireError(f"a frame of {length} bytes was announced; at most {max_bytes} are taken")
        body = _exactly(sock, length, deadline, fds)
        if len(fds) > MAX_FDS:
            raise WireError(f"{len(fds)} descriptors came with a frame; at most {MAX_FDS} are taken")
        header = decode(body)
        stack.pop_all()
        return header, fds


def _exactly(sock: socket.socket, size: int, deadline: float, fds: list[int]) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = _some(sock, size - len(data), deadline, fds)
        if not part:
            raise Closed("the other end closed the channel" + (" inside a frame" if data else ""))
        data += part
    return bytes(data)


def _some(sock: socket.socket, size: int, deadline: float, fds: list[int]) -> bytes:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimedOut("no whole frame in the time allowed")
    sock.settimeout(left)
    try:
        part, ancillary, flags, _ = sock.recvmsg(size, socket.CMSG_SPACE(4 * MAX_FDS), socket.MSG_CMSG_CLOEXEC)
    except TimeoutError:
        raise TimedOut("no whole frame in the time allowed") from None
    except ConnectionResetError:
        return b""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.extend(array("i", data[: len(data) // 4 * 4]))
    if flags & socket.MSG_CTRUNC:
        raise WireError(f"more than {MAX_FDS} descriptors came with a frame")
    return part


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
    fds.clear()


# --------------------------------------------------------------------------------------------- shared memory


def memfd(name: str, size: int) -> int:
    """Anonymous shared memory of `size` bytes, all of it present, sealed against any change of size. OSError when there is not enough."""
    if size <= 0:
        raise WireError(f"shared memory of {size} bytes was asked for")
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with ExitStack() as stack:
        stack.callback(os.close, fd)
        os.posix_fallocate(fd, 0, size)  # memory that is missing is an error here, not a SIGBUS later
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _NO_RESIZE)
        stack.pop_all()
    return fd


def seal_writes(fd: int) -> None:
    """From now on nobody can write it or map it writable; mappings that exist stay as they are. Final."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FUTURE_WRITE | fcntl.F_SEAL_SEAL)


def seal_seals(fd: int) -> None:
    """From now on no seal can be added. Final."""
    if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SEAL:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)


def read(fd: int, size: int) -> bytes:
    """The first `size` bytes behind a descriptor, fewer where it ends before. One read of the kernel's gives 2 GiB at most."""
    pieces: list[bytes] = []
    at = 0
    while at < size and (piece := os.pread(fd, size - at, at)):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


def check(fd: int, size: int, *, read_only: bool = False) -> None:
    """WireError unless `fd` is shared memory of exactly `size` bytes that cannot change size (nor, if `read_only`, be mapped writable)."""
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size != size:
        raise WireError(f"a descriptor is not shared memory of {size} bytes")
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise WireError("a descriptor is a file, not shared memory") from None
    wanted = _NO_RESIZE | (_FUTURE_WRITE if read_only else 0)
    if seals & wanted != wanted:
        raise WireError("shared memory is not sealed")


# --------------------------------------------------------------------------------------------- tensors


class Tensor(Struct, frozen=True, tag="tensor"):
    """A tensor in a buffer. Strides and `offset` (of element 0) in bytes; `nbytes` from element 0 to the end of the last one."""

    name: str
    dtype: str  # a name of keepfast.dtypes
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    offset: int = 0
    nbytes: int = 0

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides_bytes) or len(self.shape) > MAX_DIMENSIONS:
            raise ValueError(f"`{self.name}`: {len(self.shape)} sizes, {len(self.strides_bytes)} strides, at most {MAX_DIMENSIONS}")
        if min((*self.shape, self.offset, self.nbytes)) < 0:
            raise ValueError(f"`{self.name}`: a size, the offset or the length is negative")


class Scalar(Struct, frozen=True, tag="scalar"):
    """A word of a call that is no tensor. In a column of pointers it is read through the pointer, NULL being None."""

    name: str
    kind: str  # int | float | bool | str


Layout = tuple[Tensor | Scalar, ...]
"""What the first words of every call are; words after them (axes, stream) are not described."""


def view(buffer: bytes | bytearray | memoryview | mmap.mmap, tensor: Tensor) -> np.ndarray:
    """The tensor as a NumPy array over `buffer`, read-only when that is.

    WireError when it does not lie inside, or when NumPy has no such type.
    """
    import numpy as np

    if tensor.dtype not in _NUMPY:
        raise WireError(f"`{tensor.name}`: NumPy cannot hold {tensor.dtype}")
    itemsize = np.dtype(tensor.dtype).itemsize
    low, high = _reach(tensor, itemsize)
    if low < 0 or high > memoryview(buffer).nbytes or high - tensor.offset > tensor.nbytes:
        raise WireError(f"`{tensor.name}` does not lie inside its buffer")
    return np.ndarray(tensor.shape, tensor.dtype, buffer, tensor.offset, tensor.strides_bytes)


def _reach(tensor: Tensor, itemsize: int) -> tuple[int, int]:
    """First byte and the byte after the last one that the tensor touches."""
    if math.prod(tensor.shape) == 0:
        return tensor.offset, tensor.offset
    steps = [(n - 1) * s for n, s in zip(tensor.shape, tensor.strides_bytes, strict=True)]
    return tensor.offset + sum(s for s in steps if s < 0), tensor.offset + sum(s for s in steps if s > 0) + itemsize


def pack_layout(layout: Layout) -> int:
    """The layout as JSON in a memfd that can only be read."""
    return _constant("layout", msgspec.json.encode(layout))


def read_layout(data: bytes) -> Layout:
    try:
        return msgspec.json.decode(data, type=Layout)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"the layout is not one: {error}") from None


# --------------------------------------------------------------------------------------------- call tables


def word(value: float | None) -> int:
    """A value as the 64-bit word of a call: two's complement, a double by its bits, None as NULL."""
    if value is None:
        return NULL
    if isinstance(value, float):
        return int.from_bytes(struct.pack("<d", value), "little")
    if not -(2**63) <= value < 2**64:
        raise WireError(f"{value} does not fit in 64 bits")
    return int(value) & NULL


def table(kinds: Sequence[int], rows: Sequence[Sequence[float | None]]) -> int:
    """A call table in a memfd that can only be read; the caller closes it.

    `kinds`, one a column: 0 for a word that is passed as it is, i + 1 for an offset into mapped buffer i.
    """
    if not kinds or not rows or any(len(row) != len(kinds) for row in rows):
        raise WireError("a call table needs rows, and as many words in each as there are columns")
    head = struct.pack(f"<4I{len(kinds)}I", TABLE_MAGIC, len(kinds), len(rows), 0, *kinds)
    words = array("Q", (_cell(kind, value) for row in rows for kind, value in zip(kinds, row, strict=True)))
    return _constant("table", head.ljust(table_start(len(kinds)), b"\0") + words.tobytes())


def table_start(columns: int) -> int:
    """Offset of the first row in a call table."""
    return (16 + 4 * columns + 7) // 8 * 8


def _cell(kind: int, value: float | None) -> int:
    return 0 if kind == 0 and value is None else word(value)


def _constant(name: str, data: bytes) -> int:
    fd = memfd(name, len(data))
    at = 0
    while at < len(data):
        at += os.pwrite(fd, data[at:], at)
    seal_writes(fd)
    return fd
