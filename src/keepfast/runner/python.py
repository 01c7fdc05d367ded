"""The runner for baselines written in Python: `python python.py BASELINE.py`, the same messages as runner.c (see __init__.py).

The baseline defines `kernel(*arguments in schema order, *outputs)`, which writes into outputs and written arguments. Arrays
are views of the mapped buffers, read-only where the signature says so. Must not know contents' origin, clocks or verdicts.
An exception of the baseline ends the process: the judge reads its last line from the error output.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from keepfast import wire

CHANNEL = 3
MAP, TABLE, LOAD, CALL, EXIT, LAYOUT = range(1, 7)
WRITABLE = 0x100
NAMES = {MAP: "map", TABLE: "table", LOAD: "load", CALL: "call", LAYOUT: "layout"}
_SCALARS = {"int": "<q", "float": "<d", "bool": "<i"}


class Server:
    """Answers messages, one after the other, until the channel ends."""

    def __init__(self, channel: socket.socket, path: Path) -> None:
        self.channel, self.path = channel, path
        self.buffers: dict[int, mmap.mmap] = {}
        self.layout: wire.Layout = ()
        self.calls: list[tuple[object, ...]] = []
        self.kernel: Callable[..., object] | None = None

    def serve(self) -> None:
        self.answer("ready")
        while True:
            data, fds, _, _ = socket.recv_fds(self.channel, 16, 1, socket.MSG_WAITALL)
            if len(data) != 16:
                return
            op, a, b = struct.unpack("<IIQ", data)
            if op == EXIT:
                return
            self.take(op, a, b, fds[0] if fds else -1)
            for fd in fds:
                os.close(fd)

    def take(self, op: int, a: int, b: int, fd: int) -> None:
        kind, rc = op & ~WRITABLE, 0
        if kind == MAP:
            access = mmap.PROT_READ | mmap.PROT_WRITE if op & WRITABLE else mmap.PROT_READ
            self.buffers[a] = mmap.mmap(fd, b, mmap.MAP_SHARED, access)
        elif kind == LAYOUT:
            self.layout = wire.read_layout(os.pread(fd, b, 0))
        elif kind == TABLE:
            self.calls = self.read_table(os.pread(fd, b, 0))
        elif kind == LOAD:
            self.kernel = load(self.path)
        elif kind == CALL:
            rc = self.call(a, b & 0xFFFFFFFF)
        self.answer(NAMES[kind], rc, b >> 32 if kind in (LOAD, CALL) else 0)

    def answer(self, op: str, rc: int = 0, nonce: int = 0) -> None:
        self.channel.sendall(wire.encode({"op": op, "ok": rc == 0, "rc": rc, "nonce": nonce}))

    def call(self, first: int, count: int) -> int:
        """Make the calls; the first return value that is neither None nor 0 ends them."""
        kernel = self.kernel
        if kernel is None or first + count > len(self.calls):
            raise IndexError("there are no such calls")
        for arguments in self.calls[first : first + count]:
            rc = kernel(*arguments)
            if rc:
                return int(rc)  # type: ignore[call-overload, no-any-return]  # not a number: the baseline's own error
        return 0

    def read_table(self, data: bytes) -> list[tuple[object, ...]]:
        magic, columns, rows, _ = struct.unpack_from("<4I", data)
        if magic != wire.TABLE_MAGIC or columns < len(self.layout):
            raise wire.WireError("this is no call table for this layout")
        kinds = struct.unpack_from(f"<{columns}I", data, 16)
        words = memoryview(data)[wire.table_start(columns) :].cast("Q").tolist()
        return [self.arguments(kinds, words[i * columns : (i + 1) * columns]) for i in range(rows)]

    def arguments(self, kinds: tuple[int, ...], words: list[int]) -> tuple[object, ...]:
        return tuple(self.argument(item, kind, word) for item, kind, word in zip(self.layout, kinds, words, strict=False))

    def argument(self, item: wire.Tensor | wire.Scalar, kind: int, word: int) -> object:
        if kind == 0 and isinstance(item, wire.Scalar):
            return scalar(item.kind, word.to_bytes(8, "little"), 0)
        if kind == 0 or word == wire.NULL:
            return None
        buffer = self.buffers[kind - 1]
        if isinstance(item, wire.Scalar):
            return scalar(item.kind, buffer, word)
        moved = wire.Tensor(item.name, item.dtype, item.shape, item.strides_bytes, item.offset + word, item.nbytes)
        return wire.view(buffer, moved)


def scalar(kind: str, buffer: bytes | mmap.mmap, at: int) -> object:
    if kind == "str":
        return buffer[at : buffer.find(b"\0", at)].decode()
    value = struct.unpack_from(_SCALARS[kind], buffer, at)[0]
    return bool(value) if kind == "bool" else value


def load(path: Path) -> Callable[..., object]:
    """The function `kernel` of the baseline. AttributeError when it has none; whatever the file raises passes through."""
    spec = importlib.util.spec_from_file_location("keepfast_baseline", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = module.kernel
    if not callable(kernel):
        raise TypeError("`kernel` is not a function")
    return kernel  # type: ignore[no-any-return]  # what a file defines has no type


if __name__ == "__main__":
    # A duplicate: descriptor 3 stays open until the process has ended, so that the judge sees its end and not an open question.
    Server(socket.socket(fileno=os.dup(CHANNEL)), Path(sys.argv[1])).serve()
