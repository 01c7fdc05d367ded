"""In place of a capture worker: hands over a plan as an entry wants it, by the channel, from inside the same walls.

Its candidate is JSON: `set`, changes of a good plan, and `say`, changes of the answer. Untrusted, as a capture worker is. Must not know
the judge.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Any

import msgspec

from keepfast import wire
from keepfast.gpu import messages, plan
from keepfast.gpu.messages import CaseWork
from keepfast.gpu.plan import Kernel, Memset, Node, Plan, Segment

MIB = 1 << 20
IMAGE = b"cubin rms_k\0other_k\0"
NODE = {"call": 0, "work": 1, "after": 2, "early": 3}
KERNEL = {"image": 1, "name": 2, "grid": 3, "block": 4, "shared": 5, "parameters": 6, "cluster": 7, "carveout": 9, "scheduling": 10}
MEMSET = {"target": 1, "pitch": 2, "fill": 3, "element": 4, "width": 5, "height": 6}
FIELDS = NODE | KERNEL | MEMSET  # places in the arrays that records travel as
_PLACE = re.compile(r"@(arena|sets|result|end)([+-]\d+)?(/8)?")  # an address; /8: its eight bytes, as a parameter has them
Json = Any


def good(work: CaseWork, arena: int) -> Plan:
    """A plan of two nodes a call: a memset of the call's result, then a kernel that is handed sets and result."""
    layout, sets = work.layout, arena + 64 * MIB
    size = -(-work.calls * layout.set_bytes // (2 * MIB)) * 2 * MIB
    at, nodes, results = sets + size, list[Node](), list[tuple[Segment, ...]]()
    for call in range(work.calls):
        given, result = sets + call * layout.set_bytes, at + call * 4096
        parameters = ((0, given.to_bytes(8, "little")), (8, result.to_bytes(8, "little")), (16, (1024).to_bytes(4, "little")))
        nodes.append(Node(call, Memset(result, 0, 0, 4, 1024, 1), ()))
        nodes.append(Node(call, Kernel(0, "rms_k", (8, 1, 1), (128, 1, 1), 0, parameters), (2 * call,)))
        results.append((Segment(result, layout.outputs[0].nbytes),))
    segments = (Segment(sets, size), Segment(at, 2 * MIB))
    return Plan(plan.VERSION, layout.case, work.calls, sets, (IMAGE,), tuple(nodes), segments, tuple(results), ())


def changed(made: Plan, changes: list[dict[str, Json]], arena: int) -> bytes:
    """The plan as bytes, after changes: `at` is a path into it (nodes.1.after), `value` what comes there, or a list of so many `times`
    what is at `copy`."""
    tree = msgspec.msgpack.decode(plan.encode(made))
    known = {"arena": arena, "sets": made.sets, "result": made.results[0][0].address, "end": made.segments[-1].end}
    for change in changes:
        *path, last = _path(change["at"])
        parent = _at(tree, path)
        copy = change.get("copy")
        parent[last] = _value(change["value"], known) if copy is None else [_at(tree, _path(copy))] * change.get("times", 1)
    return msgspec.msgpack.encode(tree)


def _path(text: str) -> list[int | str]:
    return [int(part) if part.isdigit() else FIELDS.get(part, part) for part in text.split(".")]


def _at(tree: Json, path: list[int | str]) -> Json:
    for part in path:
        tree = tree[part]
    return tree


def _value(value: Json, known: dict[str, int]) -> Json:
    """`value` with places in it resolved."""
    if isinstance(value, list):
        return [_value(v, known) for v in value]
    match = _PLACE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value[2:].encode() if isinstance(value, str) and value.startswith("b:") else value
    number = known[match[1]] + int(match[2] or 0)
    return number.to_bytes(8, "little") if match[3] else number


def main(channel: socket.socket) -> None:
    warm, _ = messages.receive(channel, messages.Warm, timeout_s=60)
    wire.send(channel, msgspec.to_builtins(messages.Ready(True, "", 0.1)))
    capture, fds = messages.receive(channel, messages.Capture, timeout_s=600)
    files = msgspec.msgpack.decode(os.pread(fds[0], capture.files_bytes, 0), type=tuple[tuple[str, bytes], ...])
    wanted = msgspec.json.decode(files[0][1])
    work, memory = capture.cases[0], fds[1]
    raw = wanted.get("raw")
    data = changed(good(work, warm.arena), wanted.get("set", []), warm.arena) if raw is None else raw.encode()
    os.pwrite(memory, data, 0)
    said = {"error": "", "detail": "", "case": "", "cases": [[work.layout.case, len(data), 12.5]]} | wanted.get("say", {})
    _answer(channel, said, wanted, memory)


def _answer(channel: socket.socket, said: dict[str, Json], wanted: dict[str, Json], memory: int) -> None:
    cases = [{"case": case, "plan_bytes": size, "host_us": us} for case, size, us in said.pop("cases")]
    header = said | {"cases": cases, "autotuned": [], "versions": []}
    if wanted.get("descriptor"):
        wire.send(channel, header, (memory,))
    else:
        channel.sendall(wire.encode(header) * wanted.get("answers", 1))  # at once: a second one alone would come too late


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
