"""What a call costs in an exported package before the kernel is reached: routed in Python, and through torch's dispatcher.

    python benchmarks/dispatch_cost.py [--calls 20000] [--batches 30] [--out benchmarks/results/dispatch_cost.json]

Needs torch. Packages are made of examples/cpu/softmax (one tensor in, one out) and examples/cpu/rmsnorm (two tensors written, one read, a
float), with a table that sends everything to the kernel; then the kernel is taken out, so that what is left is dispatch. A batch times so
many calls of the public function and of a bare one, in turns, in CPU time of the thread; its cost is the difference of the two means.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from keepfast.device import cpu
from keepfast.dispatch import export, package, shapes, table
from keepfast.dispatch.records import Finding, Seen, Shot, Space, Table, Terms
from keepfast.model import File, Task
from keepfast.task.load import load
from keepfast.task.paths import expand

ROOT = Path(__file__).parents[1]
TASKS = ("softmax", "rmsnorm")
SIZES = (16, 64)


class Cost(Struct, frozen=True):
    """Nanoseconds a call, over batches: the least, the median, and the SD."""

    what: str
    tensors: int
    least_ns: float
    median_ns: float
    sd_ns: float
    batches: int
    calls: int


class Report(Struct, frozen=True):
    cpu: str
    python: str
    torch: str
    costs: tuple[Cost, ...]


def made(name: str) -> package.Source:
    """The example with its working tree's kernel, certified everywhere by decree: nothing is timed against anything here."""
    task = load(ROOT / "examples" / "cpu" / name)
    m, n = SIZES
    shape = {"weight": (n,)}
    tensors = [(a.name, "float32", shape.get(a.name, (m, n)), True) for a in task.signature.tensors]
    tensors += [(r.name, "float32", (m, n), True) for r in task.signature.outputs]
    scalars = tuple((a.name, 1e-6) for a in task.signature.args if a.kind == "float")
    arguments, outputs = shapes.read(task.signature, (Seen((("m", m), ("n", n)), tuple(tensors), scalars),))
    return package.Source(task, _decreed(task, arguments, outputs), _files(task), f"{name}_cost")


def _files(task: Task) -> tuple[File, ...]:
    root = Path(task.root)
    return tuple(File(p, (root / p).read_bytes()) for p in expand(root, task.editable))


def _decreed(task: Task, arguments: Any, outputs: Any) -> Table:
    space = Space(("m", "n"), (("m", SIZES[:1]), ("n", SIZES[1:])), ())
    terms = Terms(0.05, 1, 0.0, 0.001)
    (point,) = space.points(SIZES)
    rows = table.rows(space, [Finding(point, "measured", "", (Shot("numpy", -1.0, 0.001, 6, 1.0, 3.0),))], terms)
    return Table(
        task=task.name, task_hash=task.hash, signature=task.signature.text, run="", champion=0, tree="0" * 64, commit="", device="cpu",
        machine="", card="", versions=(), walls="", stock="numpy", fallbacks=("numpy",), space=space, terms=terms, rounds=6, when=0.0,
        complete=True, arguments=arguments, outputs=outputs, rows=rows, regions=table.decided(space, rows),
    )  # fmt: skip


def opened(name: str, folder: Path) -> tuple[Any, Any]:
    """The package and its module _op, on a machine that is the certificate's."""
    source = made(name)
    export.write(source, export.Wanted(folder / source.name), [])
    sys.path.insert(0, str(folder / source.name / "src"))
    found = importlib.import_module(source.name)
    router = importlib.import_module(f"{source.name}._router")
    router._toolchains[-1] = ""
    return found, importlib.import_module(f"{source.name}._op")


def costs(name: str, folder: Path, calls: int, batches: int) -> list[Cost]:
    import torch

    found, op = opened(name, folder)
    arguments = _arguments(torch, name)
    function = getattr(found, "softmax" if name == "softmax" else "fused_add_rms_norm")
    function(*arguments)
    if found.stats()["custom"] != 1:
        raise SystemExit(f"{name} is not routed to its kernel: {found.stats()}")
    result = arguments[0]
    op._kernel_call = lambda *args: result  # what is left is dispatch
    with torch.no_grad():
        ways = ((f"{name}: routed in Python", function), (f"{name}: as an operator of torch", op._found))
        return [measured(what, way, arguments, (calls, batches)) for what, way in ways]


def _arguments(torch: Any, name: str) -> tuple[Any, ...]:
    x = torch.randn(*SIZES)
    return (x,) if name == "softmax" else (x, torch.randn(*SIZES), torch.randn(SIZES[1]), 1e-6)


def measured(what: str, way: Callable[..., Any], arguments: tuple[Any, ...], size: tuple[int, int]) -> Cost:
    calls, batches = size
    bare: Callable[..., Any] = lambda *args: arguments[0]  # noqa: E731
    found = [_mean_ns(way, arguments, calls) - _mean_ns(bare, arguments, calls) for _ in range(batches)]
    tensors = sum(hasattr(a, "dtype") for a in arguments)
    return Cost(what, tensors, min(found), statistics.median(found), statistics.stdev(found), batches, calls)


def _mean_ns(way: Callable[..., Any], arguments: tuple[Any, ...], calls: int) -> float:
    began = time.thread_time_ns()
    for _ in range(calls):
        way(*arguments)
    return (time.thread_time_ns() - began) / calls


def report(calls: int, batches: int) -> Report:
    import torch

    with tempfile.TemporaryDirectory() as folder:
        found = [cost for name in TASKS for cost in costs(name, Path(folder), calls, batches)]
    return Report(cpu.fingerprint("none").cpu, platform.python_version(), str(torch.__version__), tuple(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = report(asked.calls, asked.batches)
    for cost in found.costs:
        numbers = f"least {cost.least_ns:7.0f} ns, median {cost.median_ns:7.0f} ns, SD {cost.sd_ns:6.0f} ns over {cost.batches} batches"
        print(f"{cost.what:<36} {cost.tensors} tensors  {numbers} of {cost.calls} calls")
    if asked.out is not None:
        asked.out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main()
