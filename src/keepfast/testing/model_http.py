"""The scripted model's HTTP: addresses, headers, streams and how they break. Must not know what a wire format holds."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import msgspec

from keepfast.testing.model_formats import Filled, Format, Request, dump
from keepfast.testing.model_openai import Chat, Responses
from keepfast.testing.model_others import Gemini, Messages
from keepfast.testing.model_script import USAGE, Endless, Exchange, HalfStream, Reply, Say, Slow, Status
from keepfast.testing.model_tools import NoTool
from keepfast.testing.model_tools import answer as rendered

KEYS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization")
MOST_BYTES = 64 << 20
SILENCE_S = 60.0  # a client that says nothing for so long is hung up on


class Book(Protocol):
    """Who decides what is answered, and remembers it."""

    closing: threading.Event

    def take(self, exchange: Exchange) -> tuple[int, Reply]: ...

    def note(self, exchange: Exchange) -> None: ...

    def settle(self, number: int, delivered: bool, problem: str = "") -> None: ...


class Listener(ThreadingHTTPServer):
    """Serves loopback alone and can end every connection, so that closing never waits for a client."""

    daemon_threads = False
    allow_reuse_address = False

    def __init__(self, address: tuple[str, int], handler: type[Handler], book: Book) -> None:
        self.book = book
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return str(client_address[0]).startswith("127.")

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what tests do; anything else is seen in the exchange that has no answer."""

    def hang_up(self) -> None:
        with self._guard:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def format_of(path: str) -> Format | None:
    if path.endswith("/chat/completions"):
        return Chat()
    if path.endswith("/responses"):
        return Responses()
    if path.endswith(("/messages", "/messages/count_tokens")):
        return Messages()
    return Gemini() if path.endswith((":generateContent", ":streamGenerateContent", ":countTokens")) else None


def without_keys(headers: Message) -> tuple[tuple[str, str], ...]:
    return tuple((k.lower(), v) for k, v in headers.items() if k.lower() not in KEYS)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "scripted-model", ""
    timeout = SILENCE_S
    server: Listener

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is written anywhere."""

    def do_GET(self) -> None:
        self._stray(dump({"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": []}))

    def do_HEAD(self) -> None:
        self._stray(b"")

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        size = int(self.headers.get("content-length") or -1)
        format = format_of(path)
        host = (self.headers.get("host") or "").rpartition(":")[0]
        if format is None or not 0 <= size <= MOST_BYTES or host not in ("127.0.0.1", "localhost"):
            self.close_connection = True
            return self._stray(dump({"error": {"message": f"no model at {path}"}}), 404)
        body = self.rfile.read(size)
        try:
            request = format.read(path, body)
        except msgspec.DecodeError as error:
            self.server.book.note(self._exchange(body, problem=f"not a {format.name} request: {error}"))
            return self.answer(400, format.error(400, f"not a {format.name} request: {error}", None))
        if request.counts:
            return self._stray(dump({"input_tokens": USAGE.input_tokens, "totalTokens": USAGE.input_tokens}), 200)
        tools = tuple(o.name for o in request.offers)
        seen = self._exchange(body, protocol=format.name, model=request.model, tools=tools)
        seen = msgspec.structs.replace(seen, stream=request.stream, messages=request.messages)
        number, reply = self.server.book.take(seen)
        return Delivery(self, format, request, number).send(reply)

    def _stray(self, body: bytes, status: int = 0) -> None:
        """What no model answers: a list of models, a probe, a wrong address."""
        self.server.book.note(self._exchange(b""))
        path = self.path.partition("?")[0]
        self.answer(status or (200 if path.endswith("/models") else 404), body)

    def _exchange(self, body: bytes, protocol: str = "", model: str = "", tools: tuple[str, ...] = (), problem: str = "") -> Exchange:
        path, _, query = self.path.partition("?")
        keyed = "key=" in query or any(self.headers.get(k) for k in KEYS)
        text = body.decode("utf-8", "replace")
        return Exchange(
            protocol, path, model, False, without_keys(self.headers), keyed, tools, size_bytes=len(body), body=text, problem=problem
        )

    def answer(self, status: int, body: bytes, retry_after: float | None = None, short: int = 0) -> None:
        """An answer in one piece; `short`: this many bytes fewer than promised."""
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if retry_after is not None:
            self.send_header("retry-after", f"{retry_after:g}")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) - short])
        self.close_connection = self.close_connection or bool(short)


class Delivery:
    """One reply on its way to one client."""

    def __init__(self, handler: Handler, format: Format, request: Request, number: int) -> None:
        self.handler, self.format, self.request, self.number = handler, format, request, number
        self.book = handler.server.book

    def send(self, reply: Reply) -> None:
        try:
            self._send(reply, 0.0)
        except NoTool as problem:
            self.book.settle(self.number, False, str(problem))
            self.handler.answer(400, self.format.error(400, str(problem), None))
        except OSError:  # the client left
            self.book.settle(self.number, False)
            self.handler.close_connection = True

    def _send(self, reply: Reply, seconds: float) -> None:
        match reply:
            case Status(code=code, retry_after=wait, text=text):
                self.handler.answer(code, self.format.error(code, text, wait), wait)
            case Slow(seconds=longer, then=then):
                self._send(then, seconds + longer)
            case HalfStream(of=of, clean=clean):
                self._half(of, clean)
            case Endless(every_s=every_s):
                self._endless(every_s)
            case _ if self.request.stream:
                events = self.format.parts(self._filled(reply)).all()
                self._open_stream()
                for at, event in enumerate(events):
                    if self.book.closing.wait(seconds / len(events)):
                        raise ConnectionAbortedError
                    self._settled_before_the_last(at == len(events) - 1)
                    self._chunk(event)
                self._chunk(b"")
            case _:
                whole = self.format.whole(self._filled(reply))
                if self.book.closing.wait(seconds):
                    raise ConnectionAbortedError
                self._settled_before_the_last(True)
                self.handler.answer(200, whole)

    def _settled_before_the_last(self, last: bool) -> None:
        """Noted first, as the client may be done, and its test may look, as soon as it has the last byte."""
        if last:
            self.book.settle(self.number, True)

    def _half(self, of: Reply, clean: bool) -> None:
        filled = self._filled(of)
        if self.request.stream:
            events = self.format.parts(filled).all()
            self._open_stream()
            for event in events[: max(1, len(events) // 2)]:
                self._chunk(event)
            if clean:
                self._chunk(b"")
            self.handler.close_connection = True
            return
        whole = self.format.whole(filled)
        half = whole[: len(whole) // 2] if clean else whole
        self.handler.answer(200, half, short=0 if clean else len(whole) - len(whole) // 2)

    def _endless(self, every_s: float) -> None:
        if self.request.stream:
            self._open_stream()
            for event in self.format.parts(self._filled(Say(""))).head:
                self._chunk(event)
            at = 0
            while not self.book.closing.wait(every_s):
                at += 1  # ever new words: some CLIs see a loop in those that come again, and end it
                self._chunk(self.format.parts(self._filled(Say(f"and {at * 7919 % 100_003} "))).words[0])
        while not self._left() and not self.book.closing.wait(every_s):
            pass
        raise ConnectionAbortedError

    def _left(self) -> bool:
        connection = self.handler.connection
        return bool(select.select([connection], [], [], 0)[0]) and not connection.recv(1, socket.MSG_PEEK)

    def _filled(self, reply: Reply) -> Filled:
        return Filled(rendered(reply, self.request.offers), reply.usage, self.request.model, self.number, self.request.billed)

    def _open_stream(self) -> None:
        self.handler.send_response(200)
        self.handler.send_header("content-type", "text/event-stream")
        self.handler.send_header("transfer-encoding", "chunked")
        self.handler.end_headers()

    def _chunk(self, data: bytes) -> None:
        """A piece of the stream, at once; an empty one ends it."""
        self.handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.handler.wfile.flush()
