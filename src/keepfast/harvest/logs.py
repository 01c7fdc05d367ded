"""What the processes of the program have left: a log, counts and contents each, read with suspicion and put together.

The program may have been killed at any instant, and may have written anything. Must not know the program or the folder that comes of it.
"""

from __future__ import annotations

import os
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from keepfast.harvest.records import Call, Part, Value

HEADER, SLOT = struct.Struct("<8Q"), struct.Struct("<QQ")  # as keepfast_hook.tally writes them
SLOTS, LOG_BYTES, PROCESSES, DEPTH = 4096, 33 << 20, 4096, 4
LARGEST = 1 << 50


class Hooked(Struct, frozen=True):
    pid: int = 0
    python: str = ""
    file: str = ""
    line: int = 0
    schema: str = ""
    problem: str = ""


class Line(Struct, frozen=True):
    """One line of a log: each has some of these."""

    hooked: Hooked | None = None
    versions: dict[str, str] | None = None
    problem: str = ""
    slot: int = -1
    values: tuple[Value, ...] | None = None
    sample: int = -1
    draw: float = 0.0
    parts: tuple[Part, ...] = ()
    gone: int = -1
    after: int = -1
    written: tuple[str, ...] = ()
    returned: tuple[Value, ...] = ()


class Taken(Struct, frozen=True):
    """Contents of one call in a process's folder."""

    path: Path
    draw: float
    values: tuple[Value, ...]
    parts: tuple[Part, ...]
    seen_after: bool
    written: tuple[str, ...]
    returned: tuple[Value, ...]


class Left(Struct):
    """All processes together."""

    processes: int = 0
    header: list[int] = field(default_factory=lambda: [0] * 8)
    kinds: dict[tuple[Value, ...], tuple[int, int]] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    hooked: list[Hooked] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)


def read(folder: Path) -> Left:
    """Everything below `folder`; what is damaged is left out and named in `problems`."""
    left = Left()
    for one in sorted(folder.glob("p[0-9]*"))[:PROCESSES]:
        try:
            _process(one, left)
        except (OSError, ValueError, struct.error, msgspec.MsgspecError) as problem:
            left.problems[f"the record of process {one.name} is damaged: {type(problem).__name__}"] += 1
    return left


def plain_file(path: Path, most: int) -> bytes:
    """The bytes of a regular file that is no link. ValueError for anything else, or more than `most` bytes."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            raise ValueError(f"{path.name} is no plain file of at most {most} bytes")
        return file.read(most)


def fits(value: Value, depth: int = 0) -> bool:
    """Whether a value is one: sizes that make sense, and not too deep."""
    sizes = (*value.shape, *value.stride)
    inner = all(fits(one, depth + 1) for one in value.items) and len(value.items) <= 64
    return inner and depth < DEPTH and len(value.shape) == len(value.stride) <= 32 and all(abs(n) < LARGEST for n in sizes)


def fits_part(part: Part, size: int) -> bool:
    """Whether a part lies in its file of `size` bytes."""
    sizes = all(0 <= n < LARGEST for n in part.shape) and len(part.shape) == len(part.stride) <= 32
    return sizes and part.at >= 0 and part.nbytes >= 0 and part.at + part.nbytes <= size


def _process(folder: Path, left: Left) -> None:
    lines = list(_lines(plain_file(folder / "log", LOG_BYTES)))
    counts = plain_file(folder / "counts", HEADER.size + SLOTS * SLOT.size)
    left.processes += 1
    left.header = [a + b for a, b in zip(left.header, HEADER.unpack_from(counts), strict=True)]
    slots: dict[int, tuple[Value, ...]] = {}
    taken: dict[int, tuple[Taken, int]] = {}
    for line in lines:
        _told(line, left)
        if line.values is not None and 0 <= line.slot < SLOTS and all(map(fits, line.values)):
            slots[line.slot] = line.values
        elif line.sample >= 0 and line.slot in slots:
            path = folder / f"s{line.sample:06}"
            taken[line.sample] = (Taken(path, line.draw, slots[line.slot], line.parts, False, (), ()), line.slot)
        elif line.gone >= 0:
            taken.pop(line.gone, None)
        elif line.after in taken:
            before, slot = taken[line.after]
            after = msgspec.structs.replace(before, seen_after=True, written=line.written, returned=line.returned)
            taken[line.after] = (after, slot)
    for slot, values in slots.items():
        seen, estimate = SLOT.unpack_from(counts, HEADER.size + slot * SLOT.size)
        if seen:
            old = left.kinds.get(values, (0, 0))
            left.kinds[values] = (old[0] + seen, old[1] + estimate)
    left.taken += [one for one, _ in taken.values()]


def _lines(data: bytes) -> Iterator[Line]:
    decoder = msgspec.json.Decoder(Line)
    whole = data.split(b"\n")[:-1]  # the last line may be half
    for line in whole:
        yield decoder.decode(line)


def _told(line: Line, left: Left) -> None:
    if line.hooked is not None:
        left.hooked.append(line.hooked)
        if line.hooked.problem:
            left.problems[line.hooked.problem] += 1
    left.versions |= line.versions or {}
    if line.problem:
        left.problems[line.problem] += 1


def calls(left: Left, most: int) -> tuple[tuple[Call, ...], int]:
    """The kinds of call, the commonest first, at most so many but the largest always; and how many calls were left out."""
    found = [Call(values, seen, estimate) for values, (seen, estimate) in left.kinds.items()]
    found.sort(key=lambda call: -call.estimate)
    kept, rest = found[:most], found[most:]
    if rest and max(map(elements, rest)) > max(map(elements, kept)):
        largest = max(rest, key=elements)
        kept, rest = [*kept[:-1], largest], [c for c in (*rest, kept[-1]) if c is not largest]
    return tuple(kept), sum(call.estimate for call in rest)


def elements(call: Call) -> int:
    return sum(_elements(value) for value in call.values)


def _elements(value: Value) -> int:
    total = 1
    for n in value.shape:
        total *= n
    return total if value.is_tensor else sum(map(_elements, value.items))
