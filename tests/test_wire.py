"""Frames: whatever arrives is what was sent, or a WireError."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast import wire
from keepfast.wire import WireError

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | text


def nested(depth: int) -> st.SearchStrategy[object]:
    if depth == 0:
        return scalars
    inner = nested(depth - 1)
    return scalars | st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3)


headers = st.dictionaries(text, nested(4), max_size=4)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    with a, b:
        yield a, b


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---- frames


@given(headers)
def test_round_trip(header: dict[str, object]) -> None:
    assert wire.unframe(wire.encode(header)) == header


@settings(max_examples=30)
@given(headers)
def test_round_trip_through_a_socket(header: dict[str, object]) -> None:
    a, b = socket.socketpair()
    with a, b:
        wire.send(a, header)
        assert wire.receive(b, timeout_s=5) == (header, [])


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_an_error(body: bytes) -> None:
    with suppress(WireError):
        assert isinstance(wire.decode(body), dict)


PIECES = [b"{", b"}", b"[", b"]", b'"', b"\\", b":", b",", b"1", b"-", b"e9", b".", b"true", b"null", b'"a"', b"\\ud800", b" "]
json_like = st.lists(st.sampled_from(PIECES))


@given(json_like.map(b"".join))
def test_anything_like_json_is_an_object_or_an_error(body: bytes) -> None:
    """And what is taken is what the standard reader takes."""
    try:
        found = wire.decode(body)
    except WireError:
        return
    assert found == json.loads(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"3", "not a JSON object"),
        (b'{"a":1,"a":2}', "a key twice"),
        (b'{"b":{"a":1,"a":1}}', "a key twice"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":1e999}', "too large"),
        (b'{"a":0.' + b"1" * 40 + b"}", "too long"),
        (b'{"a":' + b"1" * 21 + b"}", "more than 20 digits"),
        (b'{"a":' + b"[" * 8 + b"]" * 8 + b"}", "nested deeper than 8"),
        (b"[" * 60000, "nested deeper than 8"),
        (b'{"a":"\\ud800"}', "not JSON"),
        (b'{"\\udfff":1}', "not JSON"),
        (b'{"a":"\xed\xa0\x80"}', "not JSON"),
        (b'{"a":"\xff"}', "not JSON"),
        (b'{"a":1} x', "not JSON"),
    ],
)
def test_refused(body: bytes, said: str) -> None:
    with pytest.raises(WireError, match=said):
        wire.decode(body)


def test_at_the_caps() -> None:
    assert wire.decode(b'{"a":' + b"[" * 7 + b"]" * 7 + b"}")
    assert wire.decode(b'{"a":18446744073709551615,"b":"[[[[[[[[[[[[{{\\"[[["}')["a"] == 2**64 - 1
    assert wire.decode(b'{"a":"\\ud83d\\ude00"}') == {"a": "\N{GRINNING FACE}"}


def test_brackets_are_counted_in_linear_time() -> None:
    began = time.process_time()
    for body in (b'"\\' * 32000, b'"' * 65536, b'{"a":"' + b"\\" * 65000):
        with pytest.raises(WireError):
            wire.decode(body)
    assert time.process_time() - began < 2  # quadratic is minutes


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), b"bytes", {1}])
def test_what_cannot_be_sent(value: object) -> None:
    with pytest.raises(WireError, match="cannot be sent"):
        wire.encode({"a": value})


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_unframe_takes_exactly_one_frame(before: bytes, after: bytes) -> None:
    frame = wire.encode({"a": 1})
    if before or after:
        with pytest.raises(WireError):
            wire.unframe(before + frame + after if before[:4] != frame[:4] else frame[:-1])


@given(st.integers(0, 2**32 - 1))
def test_announced_length_is_held_to(length: int) -> None:
    a, b = socket.socketpair()
    with a, b:
        a.send(struct.pack("<I", length) + b'{"a":1}')
        a.close()
        if length == 7:
            assert wire.receive(b, timeout_s=5)[0] == {"a": 1}
        else:
            with pytest.raises(WireError):
                wire.receive(b, timeout_s=5, max_bytes=1000)


def test_nothing_is_allocated_for_a_huge_announcement(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    a.send(b"\xff\xff\xff\xff")
    with pytest.raises(WireError, match="4294967295 bytes was announced; at most 65536"):
        wire.receive(b, timeout_s=5)


def test_end_of_the_channel(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    a.send(b"\x07\0\0\0{")
    a.close()
    with pytest.raises(wire.Closed, match="inside a frame"):
        wire.receive(b, timeout_s=5)
    with pytest.raises(wire.Closed):
        wire.receive(b, timeout_s=5)
    with pytest.raises(wire.Closed):
        wire.send(b, {"a": 1})


def test_silence(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(wire.TimedOut):
        wire.receive(pair[1], timeout_s=0.01)


def test_dripping_does_not_extend_the_time(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    frame = struct.pack("<I", 60000) + b" " * 60000

    enough = threading.Event()

    def drip() -> None:
        for i in range(len(frame)):  # which takes minutes
            a.send(frame[i : i + 1])
            if enough.wait(0.005):
                return

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(wire.TimedOut):
            wire.receive(b, timeout_s=0.1)
        assert thread.is_alive()
    finally:
        enough.set()
        thread.join()


def test_a_peer_that_takes_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(wire.TimedOut, match="took nothing"):
        wire.send(pair[0], {"a": "x" * 4_000_000}, timeout_s=0.05)


# ---- descriptors


def test_descriptors_travel(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    fds = [wire.memfd("one", 10), wire.memfd("two", 20)]
    wire.send(a, {"n": 2}, fds)
    header, found = wire.receive(b, timeout_s=5)
    assert header == {"n": 2}
    assert [os.fstat(fd).st_size for fd in found] == [10, 20]
    assert not any(os.get_inheritable(fd) for fd in found)
    for fd in fds + found:
        os.close(fd)


@pytest.mark.parametrize("body", [b'{"a":NaN}', b"[[[[[[[[[[", b'{"a":1'])
def test_descriptors_of_a_bad_frame_are_closed(pair: tuple[socket.socket, socket.socket], body: bytes) -> None:
    a, b = pair
    before = open_fds()
    socket.send_fds(a, [struct.pack("<I", len(body)) + body], [0, 1, 2])
    with pytest.raises(WireError):
        wire.receive(b, timeout_s=5)
    assert open_fds() == before


def test_descriptors_in_every_piece_are_counted(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    before = open_fds()
    frame = wire.encode({"a": 1})
    for byte in frame:
        socket.send_fds(a, [bytes([byte])], [0] * 40)
    with pytest.raises(WireError, match="descriptors came"):
        wire.receive(b, timeout_s=5)
    assert open_fds() == before


def test_too_many_descriptors_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    before = open_fds()
    socket.send_fds(a, [wire.encode({"a": 1})], [0] * 200)
    with pytest.raises(WireError, match="more than 64 descriptors"):
        wire.receive(b, timeout_s=5)
    assert open_fds() == before
