"""The same over a real socket: streams that drip, break and never end, and what they leave behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from keepfast.propose.agent import Limits, Outcome, Turn
from keepfast.propose.chat import ChatAgent, named
from tests.propose.chat.talking import AFTER, GOOD, KEY, PROTOCOLS, events, job, sse

Write = Callable[[bytes], Any]
both = pytest.mark.parametrize("protocol", PROTOCOLS)


class Faults(ThreadingHTTPServer):
    """Each request is answered by the next of `plays`, the last one for ever. A play writes raw bytes, headers included."""

    daemon_threads = True
    plays: list[Callable[[Write], None]]
    requests = 0
    closing = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go away: that is what is tested."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Faults = self.server  # type: ignore[assignment]
        self.rfile.read(int(self.headers["content-length"]))
        play = server.plays[min(server.requests, len(server.plays) - 1)]
        server.requests += 1
        play(self._write)
        self.close_connection = True

    def _write(self, data: bytes) -> None:
        if self.server.closing:  # type: ignore[attr-defined]
            raise ConnectionResetError
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(*plays: Callable[[Write], None]) -> Iterator[Faults]:
    server = Faults(("127.0.0.1", 0), Handler)
    server.plays = list(plays)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.closing = True
        server.shutdown()
        thread.join()
        server.server_close()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def good(protocol: str, pieces: int = 1) -> Callable[[Write], None]:
    """The right answer, cut into bytes that mean nothing."""
    content = sse(events(protocol, GOOD))

    def play(write: Write) -> None:
        write(CHUNKED)
        for start in range(0, len(content), len(content) // pieces + 1):
            write(chunk(content[start : start + len(content) // pieces + 1]))
        write(b"0\r\n\r\n")

    return play


def turn(server: Faults, protocol: str, seconds: float = 20.0, **more: Any) -> Turn:
    kind = "chat:m" if protocol == "chat" else "anthropic:m"
    options = named(f"{kind}@http://127.0.0.1:{server.server_port}")
    for name, value in ({"first_wait_s": 0.01, "retries": 2} | more).items():
        options = replaced(options, name, value)
    return ChatAgent(options, key=lambda provider: KEY).turn(job(limits=Limits(seconds=seconds)))


def replaced(options: Any, name: str, value: object) -> Any:
    import msgspec

    return msgspec.structs.replace(options, **{name: value})


@both
@pytest.mark.parametrize("pieces", [1, 7, 400])
def test_a_stream_in_pieces(protocol: str, pieces: int) -> None:
    with serving(good(protocol, pieces)) as server:
        found = turn(server, protocol)
    assert (found.outcome, found.changed, found.usage.tokens) == (Outcome.EDITED, (("kernel/k.c", AFTER),), 120)


@both
def test_half_a_stream_and_then_a_whole_one(protocol: str) -> None:
    def half(write: Write) -> None:
        write(CHUNKED + chunk(sse(events(protocol, GOOD)[:5])))

    def torn(write: Write) -> None:
        write(CHUNKED + b"fff\r\ndata: {")

    with serving(half, torn, good(protocol)) as server:
        assert turn(server, protocol).outcome is Outcome.EDITED
        assert server.requests == 3
    with serving(half) as server:
        found = turn(server, protocol)
        assert (found.outcome, server.requests) == (Outcome.CRASHED, 3)


@both
def test_a_drip_without_end_is_cut_by_time(protocol: str) -> None:
    def drip(write: Write) -> None:
        write(CHUNKED)
        while True:
            write(chunk(b": still thinking\n\n"))
            time.sleep(0.05)

    begun = time.monotonic()
    with serving(drip) as server:
        found = turn(server, protocol, seconds=1.6)
    assert (found.outcome, server.requests) == (Outcome.TIMED_OUT, 1)
    assert time.monotonic() - begun > 1.4


@both
def test_headers_without_end_are_cut_by_time(protocol: str) -> None:
    def drip(write: Write) -> None:
        write(HEAD)
        while True:
            write(b"x-a: b\r\n")
            time.sleep(0.05)

    with serving(drip) as server:
        assert turn(server, protocol, seconds=1.6).outcome is Outcome.TIMED_OUT


@both
def test_words_without_end_are_cut_by_bytes(protocol: str) -> None:
    def flood(write: Write) -> None:
        write(CHUNKED)
        one = sse(events(protocol, "x" * 2000)[1:-4])
        while True:
            write(chunk(one))

    with serving(flood) as server:
        found = turn(server, protocol, stream_bytes=3_000_000, seconds=40)
        assert (found.outcome, server.requests) == (Outcome.MALFORMED, 1)


@both
def test_silence_is_a_broken_stream(protocol: str) -> None:
    done = threading.Event()

    def silent(write: Write) -> None:
        write(CHUNKED + chunk(sse(events(protocol, GOOD)[:3])))
        done.wait(5)

    with serving(silent, good(protocol)) as server:
        assert turn(server, protocol, idle_seconds=0.3).outcome is Outcome.EDITED
        done.set()


@both
def test_bytes_that_are_no_http(protocol: str) -> None:
    with serving(lambda write: write(b"\x00\xff nonsense\r\n\r\n")) as server:
        assert turn(server, protocol).outcome is Outcome.CRASHED
        assert server.requests == 3


@both
def test_a_compressed_bomb_is_cut(protocol: str) -> None:
    import gzip

    bomb = gzip.compress(b"data: {}\n\n" * 4_000_000)

    def play(write: Write) -> None:
        write(HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(bomb) + bomb)

    with serving(play) as server:
        found = turn(server, protocol, stream_bytes=1_000_000)
    assert (found.outcome, server.requests) == (Outcome.MALFORMED, 1)


def test_nobody_listens() -> None:
    with serving(good("chat")) as server:
        pass
    found = turn(server, "chat")
    assert found.outcome is Outcome.CRASHED
    assert "ConnectError" in found.detail


def test_turns_in_threads_leave_nothing_open() -> None:
    with serving(good("chat", 3)) as server:
        assert turn(server, "chat").outcome is Outcome.EDITED
        before = len(os.listdir("/proc/self/fd")) + threading.active_count()
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda n: turn(server, "chat").outcome, range(24)))
        assert set(found) == {Outcome.EDITED}
        until = time.monotonic() + 30  # the server's side closes a moment later
        while len(os.listdir("/proc/self/fd")) + threading.active_count() > before + 4 and time.monotonic() < until:
            time.sleep(0.02)
        assert len(os.listdir("/proc/self/fd")) + threading.active_count() <= before + 4
