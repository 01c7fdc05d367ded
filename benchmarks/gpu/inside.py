"""Times kernels where they are captured: a process with torch that makes the calls in a CUDA graph and queues it as the launcher does.

    python benchmarks/gpu/inside.py JOBS.json        (benchmarks/gpu/plans.py calls it)

JOBS.json is a list of Job. Prints one JSON line for each, a Timed. No walls: every kernel here is ours.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

SLOT, SLOTS = 4, 6  # launches queued between two waits, as in a launcher's slot; the first slot warms and does not count


class Job(Struct, frozen=True):
    """`files` with their paths in the tree, `path`: folders of it that imports begin at. `calls` of a launch, one set of inputs each."""

    key: str
    task: str  # folder
    files: tuple[tuple[str, str], ...]
    path: tuple[str, ...]
    entry: str
    symbol: str
    case: str
    calls: int


class Timed(Struct, frozen=True):
    key: str
    us: float = 0.0  # of a call
    error: str = ""


def entry(job: Job, folder: Path) -> Callable[..., Any]:
    """The candidate, imported from a folder of its own."""
    for path, text in job.files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    before = set(sys.modules)
    sys.path[:0] = [str(folder / path) for path in (Path(job.entry).parent.as_posix(), *job.path)]
    try:
        name = Path(job.entry).stem
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        found: Callable[..., Any] = getattr(importlib.import_module(name), job.symbol)
        return found
    finally:
        for name in set(sys.modules) - before:  # the next candidate has modules of the same names
            if getattr(sys.modules[name], "__file__", None) and str(folder) in str(sys.modules[name].__file__):
                del sys.modules[name]


def arguments(job: Job) -> list[list[Any]]:
    """So many sets of arguments in schema order."""
    from keepfast.oracle.reference import Reference
    from keepfast.task.load import load

    task = load(Path(job.task))
    reference = Reference(task, "cuda:0")
    case = next(c for c in task.cases if c.name == job.case)
    names = [a.name for a in task.signature.args]
    drawn = (reference.inputs(case, (i, 0, 0, 0)) for i in range(job.calls))
    return [[values[name] for name in names] for values in drawn]


def timed(job: Job, folder: Path) -> float:
    """Microseconds of a call, median over launches."""
    import torch

    call, sets = entry(job, folder), arguments(job)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()  # the arguments were drawn on another stream
    with torch.cuda.stream(stream):
        for _ in range(3):
            call(*sets[0])
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            kept = [call(*one) for one in sets]
        wash = torch.zeros(2 * torch.cuda.get_device_properties(0).L2_cache_size // 8, dtype=torch.int64, device="cuda")
        ms: list[float] = []
        for slot in range(-1, SLOTS):
            events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(SLOT)]
            for first, last in events:
                wash.sum()
                first.record()
                graph.replay()
                last.record()
            torch.cuda.synchronize()
            ms += [first.elapsed_time(last) for first, last in events] if slot >= 0 else []
    del kept
    return 1e3 * statistics.median(ms) / job.calls


def main(path: str) -> None:
    out, sys.stdout = sys.stdout, sys.stderr
    for job in msgspec.json.decode(Path(path).read_bytes(), type=tuple[Job, ...]):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = Timed(job.key, timed(job, Path(folder)))
            except Exception as error:  # noqa: BLE001  whatever a kernel raises is its line
                found = Timed(job.key, error=f"{type(error).__name__}: {str(error)[:300]}")
        print(msgspec.json.encode(found).decode(), file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
