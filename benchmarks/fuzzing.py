"""One attempt at a reader of what others wrote, and many: what it may raise, seeds, mutations, time, memory.

A target fails when it raises anything but the errors that it declares, when it takes longer than HANG_S, or when it holds more memory
than ROOM and GROWTH times what it was given. Must not know any target; `fuzz_targets.py` has them.
"""

from __future__ import annotations

import json
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from types import FrameType
from typing import Any

import msgspec

HANG_S = 5.0
ROOM, GROWTH = 48 << 20, 60  # bytes of memory that a target may hold: so many, and so many times its input
MOST = 1 << 16  # bytes of an input that mutations grow to


class Target(msgspec.Struct, frozen=True):
    """`run` reads bytes and raises nothing but `raises`. `tree`: how its seeds are a structure: "msgpack", "json", "" for none."""

    name: str
    run: Callable[[bytes], None]
    raises: tuple[type[BaseException], ...]
    seeds: tuple[bytes, ...]
    tree: str = ""


class TooSlow(BaseException):
    """The alarm; nobody's `except Exception` takes it."""


# --------------------------------------------------------------------------------------------- one attempt


def attempt(target: Target, data: bytes, *, memory: bool = True) -> tuple[str, str]:
    """(what it did, "" or what is wrong with that). What it did is a word that tells behaviours apart, for a corpus."""
    if memory:
        tracemalloc.start()
    try:
        with _alarm(HANG_S):
            did = _ran(target, data)
        if memory and (peak := tracemalloc.get_traced_memory()[1]) > ROOM + GROWTH * len(data):
            return did, f"held {peak >> 20} MiB of memory for {len(data)} bytes"
    except TooSlow:
        return "hang", f"took more than {HANG_S:g} s for {len(data)} bytes"
    except Exception as error:  # noqa: BLE001  finding these is what this is for
        return type(error).__name__, f"raised {type(error).__name__}: {error}"[:300]
    finally:
        if memory:
            tracemalloc.stop()
    return did, ""


def _ran(target: Target, data: bytes) -> str:
    try:
        target.run(data)
    except target.raises as error:
        plain = "".join("0" if c.isdigit() else c for c in str(error))
        return f"{type(error).__name__}: {plain[:60]}"
    return "taken"


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --------------------------------------------------------------------------------------------- mutations

NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    8,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**48,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**31),
    -(2**63),
)
WORDS = (
    b"\0", b"\xff", b"\n", b"\r\n", b"\r", b"`", b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b"(", b")", b"<<<<<<<", b"=======", b">>>>>>>",
    b"data: ", b"event: ", b"<think>", b"null", b"true", b"NaN", b"1e999", b"-0", b"0.1", b"**", b"//", b"min(", b"not ", b"Tensor(a!)",
    b"-> (", b"[[case]]", b"= 1", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\xf0\x9f\x98\x80", b"\x7fELF", b"IDEA:", b"\x1b[2J", b"/*", b"*/",
    b"prepare(",
)  # fmt: skip


def mutated(rng: Random, data: bytes, other: bytes, tree: str) -> bytes:
    """A few random changes; of a structure in half of the cases, of bytes in the others."""
    if tree and rng.random() < 0.5:
        with suppress(Exception):  # what an earlier change broke is changed as bytes
            return _as_tree(rng, data, tree)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        data = rng.choice(CHANGES)(rng, data, other)
    return data[:MOST]


def _flip(rng: Random, data: bytes, other: bytes) -> bytes:
    if not data:
        return bytes((rng.randrange(256),))
    at = rng.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]


def _random(rng: Random, data: bytes, other: bytes) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.randbytes(rng.choice((1, 2, 4, 8, 64))) + data[at + rng.choice((0, 1, 4)) :]


def _word(rng: Random, data: bytes, other: bytes) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(WORDS) * rng.choice((1, 1, 1, 2, 40)) + data[at + rng.choice((0, 0, 1, 5)) :]


def _number(rng: Random, data: bytes, other: bytes) -> bytes:
    size, value = rng.choice((1, 2, 4, 8)), rng.choice(NUMBERS)
    said = (value % (1 << 8 * size)).to_bytes(size, rng.choice(("little", "big"))) if rng.random() < 0.6 else str(value).encode()
    at = rng.randint(0, len(data))
    return data[:at] + said + data[at + (size if rng.random() < 0.7 else 0) :]


def _cut(rng: Random, data: bytes, other: bytes) -> bytes:
    one, two = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return data[:one] + data[two:] if rng.random() < 0.7 else data[one:two]


def _again(rng: Random, data: bytes, other: bytes) -> bytes:
    one, two = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return (data[:two] + data[one:two] * rng.choice((1, 1, 3, 30)) + data[two:])[:MOST]


def _spliced(rng: Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


def _deep(rng: Random, data: bytes, other: bytes) -> bytes:
    one, close = rng.choice(((b"[", b"]"), (b"{", b"}"), (b"(", b")"), (b'{"a":', b"}"), (b"\x91", b""), (b"-", b""), (b"not ", b"")))
    n, at = rng.choice((3, 40, 2000)), rng.randint(0, len(data))
    return (data[:at] + one * n + close * n + data[at:])[:MOST]


CHANGES = (_flip, _random, _word, _number, _cut, _again, _spliced, _deep)


def _as_tree(rng: Random, data: bytes, tree: str) -> bytes:
    read, write = {"msgpack": (msgspec.msgpack.decode, msgspec.msgpack.encode), "json": (json.loads, _json)}[tree]
    value = read(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = _changed(rng, value)
    return bytes(write(value))[:MOST]


def _json(value: object) -> bytes:
    return json.dumps(value, default=repr).encode()


def _changed(rng: Random, value: Any) -> Any:
    """One place of a structure changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        left_out = {k: v for k, v in value.items() if k != key}
        return left_out if rng.random() < 0.08 else {**value, key: _changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        kind = rng.random()
        if kind < 0.1:
            return value[:at] + value[at + 1 :]
        if kind < 0.25:
            return value[: at + 1] + value[at : at + 1] * rng.choice((1, 1, 5, 200)) + value[at + 1 :]
        return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
    return _other(rng, value)


def _other(rng: Random, value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return rng.choice((True, False, None, 1, ""))
    if isinstance(value, int) and rng.random() < 0.8:
        return rng.choice((*(n for n in NUMBERS if n < 2**63), value + 1, value - 1, value * 2))
    if isinstance(value, float) and rng.random() < 0.8:
        return rng.choice((0.0, -0.0, 1e308, -1e308, 5e-324, float("inf"), float("nan"), value * -1))
    if isinstance(value, str) and rng.random() < 0.8:
        return rng.choice(("", value * 2, value[:-1], value + "\0", "\u202e" + value, "x" * 5000, value.upper(), "\u2028", "-1"))
    if isinstance(value, bytes) and rng.random() < 0.8:
        return rng.choice((b"", value[:-1], value * 2, _flip(rng, value, b"")))
    return rng.choice((None, True, 0, -1, 1.5, "", "x", b"x", [], {}, [[]], {"a": 1}))


# --------------------------------------------------------------------------------------------- many attempts


class Tried(msgspec.Struct):
    """What came of one target: how often it ran, its behaviours, and (input, what is wrong) of each failure, one of a kind."""

    target: Target
    corpus: list[bytes]
    runs: int = 0
    seconds: float = 0.0
    seen: set[str] = msgspec.field(default_factory=set)
    failures: dict[str, tuple[bytes, str]] = msgspec.field(default_factory=dict)


CORPUS = 400  # inputs that are kept of a target
MEMORY_EACH = 16  # one in so many runs is watched for memory, which makes it slow


def begun(target: Target) -> Tried:
    return Tried(target, list(target.seeds))


def go_on(found: Tried, rng: Random, *, seconds: float = float("inf"), runs: int = 1 << 60) -> None:
    """More runs of one target, until so many or so long; what behaves in a way that was not seen before joins its corpus."""
    began, count = time.monotonic(), 0
    while count < runs and time.monotonic() - began < seconds:
        data = mutated(rng, rng.choice(found.corpus), rng.choice(found.corpus), found.target.tree)
        did, wrong = attempt(found.target, data, memory=count % MEMORY_EACH == 0)
        count += 1
        if wrong:
            found.failures.setdefault(did, (data, wrong))
        elif did not in found.seen and len(found.corpus) < CORPUS:
            found.seen.add(did)
            found.corpus.append(data)
    found.runs += count
    found.seconds += time.monotonic() - began
