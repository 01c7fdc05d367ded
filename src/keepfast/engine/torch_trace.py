"""What a trace of torch's profiler says about kernels: which ran, how often, how long, and which share of their time in CUDA graphs.

Reads the file that the profiler writes; must not know torch, or what was run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from keepfast.errors import MachineError

_RUNTIME = ("cuda_runtime", "cuda_driver")


class Ran(Struct, frozen=True):
    """Of one step. `share`: of kernel time in graph nodes; None where there are no graphs. The fields are those of `base.Graphs`."""

    share: float | None
    launches: tuple[tuple[str, int], ...] = ()
    seconds: tuple[tuple[str, float], ...] = ()


def read(path: Path, steps: int) -> Ran:
    """A Chrome trace of `steps` steps. MachineError when it holds no kernel."""
    return ran(msgspec.json.decode(path.read_bytes())["traceEvents"], steps)


def ran(events: Iterable[dict[str, Any]], steps: int) -> Ran:
    """A kernel belongs to a graph when it has a graph node, or when what launched it is a cudaGraphLaunch."""
    whole = [e for e in events if e.get("ph") == "X"]
    graph = {_args(e).get("correlation") for e in whole if e.get("cat") in _RUNTIME and "GraphLaunch" in str(e.get("name"))}
    kernels = [e for e in whole if e.get("cat") == "kernel"]
    if not kernels:
        step = "Another profiler may hold the card's counters (CUPTI): close it"
        raise MachineError("the profiler saw no kernel", where="engine transformers", next_step=step)
    count, microseconds, inside = Counter[str](), Counter[str](), 0.0
    for event in kernels:
        name, took = str(event["name"]), float(event.get("dur", 0.0))
        count[name] += 1
        microseconds[name] += took  # type: ignore[assignment]
        inside += took if _args(event).get("graph node id") or _args(event).get("correlation") in graph else 0.0
    total = sum(microseconds.values())
    return Ran(
        share=inside / total if total else 0.0,
        launches=tuple((name, round(n / steps)) for name, n in count.most_common()),
        seconds=tuple((name, us / 1e6 / steps) for name, us in microseconds.most_common()),
    )


def _args(event: dict[str, Any]) -> dict[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}
