"""Listening to a running agent: line by line, within caps, until it ends, its time is over, or its money is spent.

Owns the pipes and the clock of a turn. Whatever arrives is hostile: lines without an end, binary, more than fits in memory. Must not know
any CLI, nor what its words mean.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from keepfast.propose.agent import Limits
from keepfast.propose.command.cage import Running
from keepfast.propose.command.notes import MAX_LINE, Event, Notes, read_event
from keepfast.propose.command.patterns import kind

TAIL = 16 << 10  # bytes kept of the end of a text
PART = 1 << 16
PATIENCE_S = 30.0  # with an agent that waits for a limit to end, or for a key: the harness waits better, and asks others meanwhile
LAST_WORDS_S = 1.0  # for what is in the pipes when it has ended; what it left running may hold them open


class End(Enum):
    ITSELF = "it ended"
    TIME = "its time was over"
    MONEY = "its money was spent"
    TURNS = "its turns were used up"
    STUCK = "it waited for what will not come"
    STOPPED = "the run ended"


class Heard(Struct, frozen=True):
    """`status` is the exit status, negative for a signal; `errors` and `words` the tails of what was no event, by stream."""

    end: End
    status: int
    seconds: float
    words: str
    errors: str


def nothing() -> float:
    return 0.0


class Lines:
    """Cuts a stream into lines. One that is longer than MAX_LINE is dropped."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take, self._open, self._skipping = take, bytearray(), False

    def feed(self, part: bytes) -> None:
        first, *rest = part.split(b"\n")
        self._grow(first)
        for piece in rest:
            self.finish()
            self._grow(piece)

    def _grow(self, piece: bytes) -> None:
        if not self._skipping:
            self._open += piece
        if len(self._open) > MAX_LINE:
            self._open.clear()
            self._skipping = True

    def finish(self) -> None:
        """The end of a line."""
        if self._open:
            self._take(bytes(self._open))
        self._open.clear()
        self._skipping = False


class Tail:
    """The end of a text."""

    def __init__(self) -> None:
        self._data = b""

    def add(self, part: bytes) -> None:
        self._data = (self._data + part)[-TAIL:]

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")


class Ears(Struct, frozen=True):
    """How one CLI is listened to: its events (None: its output is text), and lines of its error output (None: nobody reads them)."""

    hear: Callable[[Event, Notes], None] | None = None
    mutter: Callable[[str, Notes], None] | None = None


def listen(running: Running, ears: Ears, notes: Notes, limits: Limits, waited: Callable[[], float] = nothing) -> Heard:
    """Returns when nothing of it is left. `waited`: seconds that it waited for us, which are not its own."""
    words, errors = Tail(), Tail()

    def take(line: bytes) -> None:
        event = read_event(line) if ears.hear is not None else None
        if ears.hear is None or event is None:
            words.add(line + b"\n")
        else:
            notes.events += 1
            ears.hear(event, notes)

    def overhear(line: bytes) -> None:
        errors.add(line + b"\n")
        if ears.mutter is not None:
            ears.mutter(line[:4096].decode("utf-8", "replace"), notes)

    out, err = Lines(take), Lines(overhear)
    watch = Watch(notes, limits, waited)
    end = _pump(running, {running.stdout.fileno(): out.feed, running.stderr.fileno(): err.feed}, watch.over)
    status = running.end()
    out.finish()
    err.finish()
    return Heard(end, status, time.monotonic() - watch.began, words.text(), errors.text())


class Watch:
    """Says when a turn must end."""

    def __init__(self, notes: Notes, limits: Limits, waited: Callable[[], float]) -> None:
        self.began = time.monotonic()
        self._notes, self._limits, self._waited = notes, limits, waited
        self._stuck: float | None = None

    def over(self) -> End | None:
        now = time.monotonic()
        if self._limits.ended():
            return End.STOPPED
        if not self._notes.stuck:
            self._stuck = None
        elif self._stuck is None:
            self._stuck = now
        if now - self.began - self._waited() >= self._limits.seconds:
            return End.STUCK if self._hopeless() else End.TIME
        waits = self._stuck is not None and (now - self._stuck >= PATIENCE_S or (self._notes.retry_s or 0.0) >= PATIENCE_S)
        return End.STUCK if waits and self._hopeless() else _used_up(self._notes, self._limits)

    def _hopeless(self) -> bool:
        return self._notes.stuck and kind(self._notes.status, " ".join(self._notes.errors[-1:])) is not None


def _used_up(notes: Notes, limits: Limits) -> End | None:
    if limits.dollars is not None and notes.dollars is not None and notes.dollars > limits.dollars and not notes.finished:
        return End.MONEY
    return End.TURNS if notes.steps > limits.turns and not notes.finished else None


def _pump(running: Running, streams: dict[int, Callable[[bytes], None]], over: Callable[[], End | None]) -> End:
    """Hands on what arrives until the process ends or must end."""
    last_words: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(running.pidfd(), selectors.EVENT_READ)
        for fd in streams:
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ)
        while True:
            ready = [key.fd for key, _ in selector.select(0.05)]
            if running.pidfd() in ready:
                last_words = time.monotonic() + LAST_WORDS_S
                selector.unregister(running.pidfd())
            for fd in ready:
                if fd in streams and not _read(fd, streams[fd]):
                    selector.unregister(fd)
            open_streams = [fd for fd in selector.get_map() if fd in streams]
            if last_words is not None and (not open_streams or not ready or time.monotonic() > last_words):
                return End.ITSELF
            if last_words is None and (end := over()) is not None:
                return end


def _read(fd: int, take: Callable[[bytes], None]) -> bool:
    """Whether more may come."""
    try:
        part = os.read(fd, PART)
    except BlockingIOError:
        return True
    take(part)
    return bool(part)
