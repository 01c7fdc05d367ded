"""Programs that speak for the three processes: what a capture worker, a launcher and an oracle say, without any of their work."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

from keepfast.gpu.layout import Given, Layout, Output, Tensor
from keepfast.gpu.messages import CaseWork

Argv = Callable[[int], tuple[str, ...]]
MIB = 1 << 20

# The files of its candidate are programs: the first one is run, with everything below at hand.
WORKER = '''
import hashlib, os, signal, socket, sys, time
import msgspec
from keepfast import wire
from keepfast.gpu import messages, plan
from keepfast.gpu.messages import CapturedCase
from keepfast.gpu.plan import Block, Kernel, Node, Plan, Segment

channel = socket.socket(fileno=int(sys.argv[1]))
number = int(sys.argv[2])
MIB = 1 << 20


def say(record, fds=()):
    wire.send(channel, msgspec.to_builtins(record), fds)


def ready(ok=True, detail=""):
    say(messages.Ready(ok, detail, 0.1))


def made(work, **changes):
    """The plan of one kernel a call: the sets, then a result of each call in a segment of its own."""
    layout, sets = work.layout, warm.arena + 64 * MIB
    size = -(-work.calls * layout.set_bytes // (2 * MIB)) * 2 * MIB
    kernel = Kernel(0, "rms_k", (1, 1, 1), (128, 1, 1), 0, ((0, sets.to_bytes(8, "little")),))
    results, at = [], sets + size
    for _ in range(work.calls):
        one = []
        for output in layout.outputs:
            one.append(Segment(at, output.nbytes))
            at += -(-output.nbytes // 512) * 512
        results.append(tuple(one))
    fields = {
        "version": plan.VERSION, "case": layout.case, "calls": work.calls, "sets": sets, "images": (b"cubin rms_k\\0",),
        "nodes": tuple(Node(i, kernel, ()) for i in range(work.calls)),
        "segments": (Segment(sets, size), Segment(sets + size, max(at - sets - size, 512) + MIB)),
        "results": tuple(results), "blocks": (),
    } | changes
    return Plan(**fields)


def hand(*plans, **more):
    """Write plans to their memory and answer for them."""
    said = []
    for given, fd in zip(plans, memory):
        data = given if isinstance(given, bytes) else plan.encode(given)
        os.pwrite(fd, data, 0)
        said.append(CapturedCase("main", len(data), 12.5))
    said = [CapturedCase(work.layout.case, one.plan_bytes, one.host_us) for one, work in zip(said, capture.cases)]
    say(messages.Captured(cases=tuple(said), **more))


def fail(error, detail="", case=""):
    say(messages.Captured(error, detail, case))


def main():
    global warm, capture, files, library, memory, samples
    warm, _ = messages.receive(channel, messages.Warm, timeout_s=60)
    before()
    capture, fds = messages.receive(channel, messages.Capture, timeout_s=600)
    wire.check(fds[0], capture.files_bytes, read_only=True)
    files = msgspec.msgpack.decode(os.pread(fds[0], capture.files_bytes, 0), type=tuple[tuple[str, bytes], ...])
    library = fds[1] if capture.library else -1
    rest = fds[2:] if capture.library else fds[1:]
    memory, samples = rest[: len(capture.cases)], rest[len(capture.cases) :]
    exec(files[0][1].decode(), globals())
    time.sleep(600)


def before():
    ready()
'''

LAUNCHER = """
import os, signal, socket, sys, time
from keepfast import wire
from keepfast.gpu import layout, messages
from keepfast.gpu.messages import Fault, KernelFacts, Opened, Ran, Timed

channel = socket.socket(fileno=int(sys.argv[1]))
number = int(sys.argv[2])
FACTS = ((KernelFacts("rms_k", 1, 32, 0, 0, 128),),)


def opened(order, fds, fault=None):
    data = [os.pread(fd, size, 0) for fd, size in zip(fds[1:], order.plan_bytes)]
    assert all(d.startswith(b"plan") for d in data), data
    out = (wire.memfd("audit", layout.audit(order.layout).size),) if order.audit == "gpu" and fault is None else ()
    messages.send(channel, Opened(FACTS * len(data), layout.audit(order.layout).size, 60 << 20, 0.2, fault), out)


def on(order, fds):
    opened(order, fds) if isinstance(order, messages.Open) else messages.send(channel, Ran(1.0))


def main():
    while True:
        order, fds = messages.receive(channel, messages.Order, timeout_s=600)
        if not isinstance(order, messages.Close):
            on(order, fds)
"""

ORACLE = """
import os, signal, socket, sys, time
from keepfast import wire
from keepfast.gpu import messages
from keepfast.gpu.messages import Answer, Bank, Described, Filled, Measured, Mutant, Mutated
from keepfast.model import Task

channel = socket.socket(fileno=int(sys.argv[1]))
number = int(sys.argv[2])


def say(record, fds=()):
    messages.send(channel, record, fds)


def main():
    global task
    task, _ = messages.receive(channel, Task, timeout_s=600)
    while True:
        question, fds = messages.receive(channel, messages.Question, timeout_s=600)
        on(question, fds)
"""


def program(folder: Path, source: str, body: str = "") -> Argv:
    """Command lines of a program made of `source` and `body`, which may define again what is in it. Each start has its number."""
    script = folder / "fake.py"
    script.write_text(f"{source}\n\n{body}\n\nmain()\n")
    script.chmod(0o644)
    numbers = itertools.count()
    return lambda fd: (sys.executable, "-s", "-P", "-B", str(script), str(fd), str(next(numbers)))


def layout(case: str = "main", set_bytes: int = 3 * MIB, outputs: tuple[int, ...] = (4096, 100)) -> Layout:
    """One tensor of floats, and outputs of so many bytes."""
    x = Tensor("float32", (set_bytes // 4,), (1,), 0, 0, set_bytes)
    made = tuple(Output(f"out{i}", "uint8", (size,), size) for i, size in enumerate(outputs))
    return Layout(case, (("n", set_bytes // 4),), (Given("x", "tensor", x),), made, set_bytes)


def work(case: str = "main", calls: int = 3, sample: int = 0) -> CaseWork:
    return CaseWork(layout(case), calls, sample=sample)
