"""What it costs to continue and stop a runner around a call that does nothing: the floor under every timed window.

    python benchmarks/stop_cost.py [--windows 2000] [--json stop_cost.json]

Wall time is from before SIGCONT until the stop is confirmed; CPU time is the runner's own. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import tempfile
from pathlib import Path

from keepfast import native, wire
from keepfast.judge.channel import Call, Failure, Runner, c_runner
from keepfast.walls.base import Walls

NOTHING = "#include <stdint.h>\nint keepfast_call(const uint64_t *w) { (void)w; return 0; }\n"
WARM_UP = 100


def machine() -> dict[str, object]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "cpu": next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def measure(walls: Walls, artifact: Path, windows: int) -> list[Call]:
    """Empty windows, the runner on the last core, the judge off it where there is another one."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:-1] or cores)
    table = wire.table([0], [[None]])
    with Runner.start(walls, c_runner(str(artifact), cores=(cores[-1],))) as runner:
        runner.table(table)
        loading = runner.load(10.0)
        found: list[Call | Failure] = [loading] if loading else []
        gc.disable()
        found += [runner.call(0, 1, 1.0) for _ in range(WARM_UP + windows)]
        gc.enable()
    os.close(table)
    for call in found:
        if isinstance(call, Failure):
            raise SystemExit(f"the empty kernel failed: {call.detail}")
    return [call for call in found if isinstance(call, Call)][WARM_UP:]


def summary(ns: list[int]) -> dict[str, float]:
    """Microseconds: median, quartiles, and the tail."""
    cuts = statistics.quantiles(ns, n=100)
    names = {"p1": cuts[0], "quartile1": cuts[24], "median": statistics.median(ns), "quartile3": cuts[74], "p99": cuts[98]}
    return {name: round(value / 1e3, 1) for name, value in names.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    walls = Walls.detect()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        source, artifact = Path(folder) / "nothing.c", Path(folder) / "nothing.so"
        source.write_text(NOTHING)
        subprocess.run([str(native.compiler()), "-O2", "-shared", "-fPIC", "-o", str(artifact), str(source)], check=True)
        calls = measure(walls, artifact, options.windows)
    result = {
        "machine": {**machine(), "walls": walls.strength},
        "windows": len(calls),
        "wall_us": summary([c.ns for c in calls]),
        "cpu_us": summary([c.cpu_ns for c in calls]),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
