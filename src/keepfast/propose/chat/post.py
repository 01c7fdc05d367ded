"""One request over HTTP, streamed: a whole answer or the trouble that it met. Owns deadlines, caps, and what a status means.

Each request has its own connection and event loop, so that its time limit holds whatever the server does: slow headers, a drip of
bytes, a stream without an end. Redirects are not followed, as a key must not go elsewhere. Must not know edits, jobs or when to retry.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Coroutine
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from keepfast.propose.agent import Outcome, never
from keepfast.propose.chat.sse import Events
from keepfast.propose.chat.talk import (
    Call,
    Count,
    Decoder,
    Dialect,
    Key,
    Malformed,
    Reply,
    Spoken,
    TooLong,
    Trouble,
    dig,
    parsed,
    words,
)

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS = 20.0
MOST_ERROR_BYTES = 65_536
LONGEST_WAIT_S = 7 * 86_400.0
SHOWN = 300  # characters of a server's words
LOOK_S = 0.2  # between two looks at whether the run still goes on
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BUSY = (429, 503, 529)
_AGAIN = (408, 409, 425, 429)
_NO_MONEY = re.compile(r"insufficient_quota|credit balance is too low|insufficient credits|billing", re.IGNORECASE)


class Line(Struct, frozen=True):
    """Where requests go and how long and large an answer may be. `transport`: an httpx.AsyncBaseTransport, for tests."""

    url: str  # of the endpoint
    dialect: Dialect
    key: Key
    idle_seconds: float = 300.0  # without a byte; models that reason in silence take minutes
    stream_bytes: int = 32 * 1024 * 1024
    transport: object = None


def post(line: Line, body: bytes, seconds: float, ended: Callable[[], bool] = never) -> Reply | Trouble:
    """Sends it and takes the answer within `seconds`, unless `ended` before. What the network and the server do is never raised."""
    import asyncio

    import httpx

    decoder = line.dialect.decoder()
    try:
        found = asyncio.run(_awaited(_timed(line, body, decoder, seconds), decoder, ended))
    except TimeoutError:
        found = _cut(decoder, Outcome.TIMED_OUT, "the time of the turn was over before the answer was")
    except httpx.TimeoutException as error:
        found = _cut(decoder, Outcome.CRASHED, _named(error, "the server was silent for too long"), again=True)
    except httpx.InvalidURL as error:
        found = _cut(decoder, Outcome.MISSING, _named(error, "the address is no URL"))
    except (httpx.HTTPError, httpx.StreamError, OSError) as error:
        found = decoder.reply() if decoder.finished else _cut(decoder, Outcome.CRASHED, _named(error, "the connection failed"), again=True)
    return _hidden(found, line.key)


async def _awaited(work: Coroutine[object, object, Reply | Trouble], decoder: Decoder, ended: Callable[[], bool]) -> Reply | Trouble:
    """What the work gives; it is given up when the run ends before."""
    import asyncio

    task = asyncio.ensure_future(work)
    while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
        if ended():
            task.cancel()
            await asyncio.wait({task})
            return _cut(decoder, Outcome.STOPPED, "the run ended")
    return task.result()


async def _timed(line: Line, body: bytes, decoder: Decoder, seconds: float) -> Reply | Trouble:
    import asyncio

    async with asyncio.timeout(seconds), _client(line) as client:
        headers = (*line.dialect.headers(line.key), ("content-type", "application/json"), ("accept-encoding", "identity"))
        async with client.stream("POST", line.url, content=body, headers=list(headers)) as response:
            if response.status_code != 200:
                return _refused(response.status_code, await _error_text(response), response.headers)
            try:
                return await _read(line, response, decoder)
            except Malformed as error:
                return _cut(decoder, Outcome.MALFORMED, f"the answer breaks the protocol: {error}", again=True)
            except TooLong:
                return _cut(decoder, Outcome.MALFORMED, "the answer was cut, as it had no end in sight")
            except Spoken as error:
                found = _refused(error.status, error.words, response.headers)
                cut = _cut(decoder, found.outcome, found.detail)
                return msgspec.structs.replace(cut, again=found.again, wait_s=found.wait_s)


def _client(line: Line) -> httpx.AsyncClient:
    import httpx

    timeout = httpx.Timeout(line.idle_seconds, connect=CONNECT_SECONDS)
    parts = urlsplit(line.url)
    own = parts.hostname in LOOPBACK  # no proxy stands between us and ourselves
    verify = not (own and parts.scheme == "http")  # reading certificates that nobody shows takes 50 ms
    return httpx.AsyncClient(timeout=timeout, trust_env=not own, verify=verify, transport=line.transport)  # type: ignore[arg-type]


async def _read(line: Line, response: httpx.Response, decoder: Decoder) -> Reply | Trouble:
    streamed = "json" not in response.headers.get("content-type", "")
    events, size, text = Events(), 0, bytearray()
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > line.stream_bytes:
            raise TooLong
        if not streamed:
            text += piece
        elif _feed(decoder, events.feed(piece)):
            break
    if streamed:
        _feed(decoder, events.end())
    else:
        decoder.whole(text.decode("utf-8", "replace"))
    if not decoder.finished:
        what = "the stream ended in the middle of the answer" if decoder.characters else "the stream ended before an answer began"
        return _cut(decoder, Outcome.CRASHED, what, again=True)
    return decoder.reply()


def _feed(decoder: Decoder, events: object) -> bool:
    """Whether the answer is closed."""
    for event, data in events:  # type: ignore[attr-defined]
        decoder.feed(event, data)
        if decoder.closed:
            return True
    return False


async def _error_text(response: httpx.Response) -> str:
    """What the server says about its refusal, cut."""
    text = bytearray()
    async for piece in response.aiter_bytes():
        text += piece
        if len(text) > MOST_ERROR_BYTES:
            break
    whole = text[:MOST_ERROR_BYTES].decode("utf-8", "replace")
    try:
        found = parsed(whole)
    except Malformed:
        return whole
    error = found.get("error")
    said = words(error) or words(dig(error, "message")) or words(found.get("message")) or whole
    return f"{said} ({words(dig(error, 'code'))})" if words(dig(error, "code")) else said


# --------------------------------------------------------------------------------------------- what a status means


def _refused(status: int, said: str, headers: httpx.Headers) -> Trouble:
    quoted = f": {_plain(said)}" if said.strip() else ""
    detail = f"the server answered {status}{quoted}"
    if status == 402 or (status in (400, 403, 429) and _NO_MONEY.search(said)):
        return Trouble(Outcome.OVER_BUDGET, f"the account has no money left; {detail}")
    if status in (401, 403):
        return Trouble(Outcome.AUTHENTICATION, detail)
    if status == 404:
        return Trouble(Outcome.MISSING, f"no such model or address; {detail}")
    outcome = Outcome.RATE_LIMITED if status in _BUSY else Outcome.CRASHED
    return Trouble(outcome, detail, again=status in _AGAIN or status >= 500, wait_s=retry_after(headers, time.time()))


def retry_after(headers: httpx.Headers, now: float) -> float | None:
    """Seconds that the server asks to wait, as a number or a date; None when it does not say, or says nonsense."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        return min(float(text), LONGEST_WAIT_S)
    milliseconds = headers.get("retry-after-ms", "").strip()
    if re.fullmatch(r"\d{1,12}", milliseconds):
        return min(int(milliseconds) / 1000, LONGEST_WAIT_S)
    try:
        return min(max(parsedate_to_datetime(text).timestamp() - now, 0.0), LONGEST_WAIT_S) if text else None
    except (ValueError, TypeError, OverflowError):
        return None


def _cut(decoder: Decoder, outcome: Outcome, detail: str, again: bool = False) -> Trouble:
    """The end of a request whose answer is not whole. Connection trouble before any byte of an answer costs nothing."""
    begun = decoder.characters > 0 or decoder.count != Count()
    return Trouble(outcome, detail, again, count=decoder.count, begun=begun, characters=decoder.characters)


def _named(error: Exception, what: str) -> str:
    said = _plain(str(error))
    return f"{what} ({type(error).__name__}{f': {said}' if said else ''})"


def _plain(text: str) -> str:
    """A server's words as one line, cut."""
    line = " ".join(text[: 4 * SHOWN].split())
    return "".join(c if c.isprintable() else "?" for c in line)[:SHOWN]


def _hidden(found: Reply | Trouble, key: Key) -> Reply | Trouble:
    """The key is in nothing that leaves this file, even where a server sends it back."""
    if isinstance(found, Trouble):
        return msgspec.structs.replace(found, detail=key.hide(found.detail))
    calls = tuple(Call(key.hide(c.id), key.hide(c.name), key.hide(c.arguments)) for c in found.calls)
    hidden = {"text": key.hide(found.text), "model": key.hide(found.model), "echo": key.hide(found.echo)}
    return msgspec.structs.replace(found, calls=calls, **hidden)
