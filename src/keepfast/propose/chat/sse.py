"""Server-sent events out of bytes that come in pieces, with a cap on what one event may hold. Must not know what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterator

from keepfast.propose.chat.talk import Malformed

MOST_BYTES = 4 * 1024 * 1024  # of one event
_END = re.compile(rb"\r\n|\n|\r(?!$)", re.DOTALL)  # a CR at the very end may be half of a CRLF


class Events:
    """Feed it bytes, take (event, data). Comments, ids and retry times are skipped."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[tuple[str, str]]:
        """The events that end in this piece. Malformed for one that is too long or not UTF-8."""
        if not re.search(rb"[\r\n]", piece) and not self._tail.endswith(b"\r"):
            self._tail += piece
            self._check(len(self._tail))
            return
        lines = _END.split(bytes(self._tail) + piece)
        self._tail = bytearray(lines.pop())
        self._check(len(self._tail))
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterator[tuple[str, str]]:
        """What a stream that ends without an empty line leaves; some servers send their last event so."""
        line = bytes(self._tail).rstrip(b"\r\n")
        self._tail.clear()
        if line:
            yield from self._line(line)
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[tuple[str, str]]:
        if not line:
            if self._data:
                yield self._event, "\n".join(self._data)
            self._event, self._data, self._size = "", [], 0
            return
        name, _, value = _text(line).partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._check(len(value))
            self._size += len(value)
            self._data.append(value)
        elif name == "event":
            self._event = value

    def _check(self, more: int) -> None:
        if self._size + more > MOST_BYTES:
            raise Malformed(f"an event is longer than {MOST_BYTES} bytes")


def _text(line: bytes) -> str:
    try:
        return line.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("an event is not UTF-8") from None
