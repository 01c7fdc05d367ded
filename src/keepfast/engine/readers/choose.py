"""All readers, JSON found in an output, and which reader it is for.

Owns how JSON is found: a whole file, a line each, or lines of JSON between lines of a log.
"""

from __future__ import annotations

import json
from typing import Any

from keepfast.engine.readers import llamacpp, plain, sglang, trtllm, vllm
from keepfast.engine.readers.base import NAMES, Reader, Table, Unreadable
from keepfast.errors import nearest

ALL = (vllm.LATENCY, vllm.THROUGHPUT, sglang.ONE_BATCH, sglang.SERVING, vllm.SERVE, trtllm.REPORT, llamacpp.BENCH, plain.PLAIN)


def reader(name: str) -> Reader:
    found = next((r for r in ALL if r.name == name), None)
    if found is None:
        raise Unreadable(f"there is no reader `{name}`.{nearest(name, NAMES)}")
    return found


def tables(text: str) -> tuple[Table, ...]:
    """Every JSON object in `text`, in order: of one document, of an array, of lines, of documents one after another, amid a log."""
    whole = _decoded(text)
    return whole if whole is not None else tuple(t for piece in _pieces(text) for t in (_decoded(piece) or ()))


def chosen(found: tuple[Table, ...], name: str) -> tuple[Reader, tuple[Table, ...]]:
    """The reader (the one named, or the one that the fields fit) and the tables that are its own. Unreadable when there are none."""
    for one in (reader(name),) if name else ALL:
        mine = tuple(t for t in found if one.fits(t))
        if mine:
            return one, mine
    what = f"of the format `{name}`" if name else "of a known format"
    fields = ", ".join(list(found[-1])[:8]) if found else "no JSON at all"
    raise Unreadable(f"holds no JSON {what}: {fields}")


def _decoded(text: str) -> tuple[Table, ...] | None:
    """Python's own JSON: an unlimited request rate is written as Infinity, which is none."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return (value,)
    return tuple(v for v in value if isinstance(v, dict)) if isinstance(value, list) else None


def _pieces(text: str) -> list[str]:
    """What begins with a bracket at the start of a line and ends with its partner at the end of one."""
    lines, out, i = text.splitlines(), list[str](), 0
    while i < len(lines):
        head = lines[i].lstrip()[:1]
        if head not in ("{", "["):
            i += 1
            continue
        end = _end(lines, i, "}" if head == "{" else "]")
        out.append("\n".join(lines[i : end + 1]))
        i = end + 1
    return out


def _end(lines: list[str], first: int, closing: str) -> int:
    """The first line from `first` on with which the text is JSON; `first` itself when there is none."""
    for last in range(first, min(len(lines), first + 4096)):
        if closing in lines[last] and _decoded("\n".join(lines[first : last + 1])) is not None:
            return last
    return first
