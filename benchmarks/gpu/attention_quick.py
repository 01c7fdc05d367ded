"""How fast are the decode attention examples on this card? All versions of their decks beside torch's attention, then a sweep.

    python benchmarks/gpu/attention_quick.py [--task dense|paged] [--seconds 60] [--cells b8_s8192,...] [--out lines.json]

Timed in CUDA graphs of at least a millisecond over input sets that together are larger than the L2 cache, versions in random order,
medians. Each result is held against reference.py first. `--seconds` bounds the sweep over tiles, warps, stages and splits; 0: none.
Needs torch, triton and one NVIDIA GPU. Kernels are compiled ahead by processes of their own, into triton's cache.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
import tomllib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2] / "examples" / "gpu"
FOLDERS = {"dense": "decode_attention", "paged": "decode_attention_paged"}
WRONG_OR_REFUSED = ("001-gather", "002-", "003-no-maximum", "004-one-look", "005-whole-blocks")
COLD, SETS = 512 << 20, 64  # bytes of input sets in a graph, unless there are so many sets
LAUNCH_US, ROUNDS, FINAL_ROUNDS = 1000.0, 7, 25
SMS = 132
ERROR = 0.015  # RMS of a row's error over its own, at most: what bfloat16 weights and results cost is 0.003

# warps, tokens of a warp, stages. Those that fit: 8, 4, 3, 2 or 1 programs on a multiprocessor
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "dense": [(4, 16, 4), (4, 16, 3), (2, 16, 5), (2, 16, 4), (2, 32, 4), (2, 32, 3), (1, 32, 4), (1, 32, 3), (1, 64, 3), (8, 16, 4)],
    "paged": [(4, 4), (4, 3), (4, 5), (2, 5), (2, 4), (2, 6), (8, 4), (8, 3)],
}  # fmt: skip


class Version(NamedTuple):
    """`config` None: what the version plans itself."""

    name: str
    path: str
    config: tuple[Any, ...] | None = None

    @property
    def label(self) -> str:
        return self.name if self.config is None else f"{self.name} {','.join(str(int(x)) for x in self.config)}"


class Cell(NamedTuple):
    name: str
    case: types.SimpleNamespace
    timed: bool


# ------------------------------------------------------------------------------------------------ what there is


def load(path: str, modules: dict[str, types.ModuleType] = {}) -> types.ModuleType:  # noqa: B006
    """A file as a module, with its tunables as keepfast's builder would hand them in."""
    if path not in modules:
        tunables, toml = types.ModuleType("keepfast_tunables"), Path(path).with_name("tunables.toml")
        space = tomllib.loads(toml.read_text()) if toml.exists() else {}
        vars(tunables).update({name: said["value"] for name, said in space.items() if isinstance(said, dict)})
        sys.modules["keepfast_tunables"] = tunables
        spec = importlib.util.spec_from_file_location(f"version_{len(modules)}", path)
        assert spec is not None
        assert spec.loader is not None
        modules[path] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[path])
    return modules[path]


def versions(task: str) -> list[Version]:
    folder = ROOT / FOLDERS[task]
    deck = [p for p in sorted((folder / "deck").iterdir()) if not p.name.startswith(WRONG_OR_REFUSED)]
    return [Version("start", str(folder / "kernel/kernel.py")), *(Version(p.name[:3], str(p / "kernel/kernel.py")) for p in deck)]


def cells(task: str, wanted: str) -> list[Cell]:
    said = tomllib.loads((ROOT / FOLDERS[task] / "task.toml").read_text())["case"]
    found = [Cell(c["name"], types.SimpleNamespace(**c), c.get("use", "both") != "correct") for c in said]
    return [c for c in found if not wanted or c.name in wanted.split(",")]


def configs(task: str, cell: Cell) -> Iterator[tuple[Any, ...]]:
    """Shapes of a program times splits of the context, without what comes to the same."""
    case = cell.case
    for shape in SHAPES[task]:
        step = shape[0] * shape[1] if task == "dense" else 16
        pairs = case.b * 8 if task == "dense" else case.b * 8 // shape[0]
        longest = case.s if task == "dense" else -(-case.s // case.page) * case.page
        steps, seen = -(-longest // step), set()
        for programs in (0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16):
            splits = max(1, min(128, steps, round(SMS * programs) // pairs))
            splits = -(-steps // -(-steps // splits))
            if splits not in seen:
                seen.add(splits)
                yield (*shape, splits)


def sweepable(task: str, found: list[Version]) -> list[tuple[Version, tuple[Any, ...]]]:
    """Versions that are swept, with what follows the splits in their configuration."""
    names = {"dense": ("009", "010"), "paged": ("006", "007", "008")}[task]
    swept = []
    for version in (v for v in found if v.name in names):
        flags = [(False,), (True,)] if "together" in load(version.path).Config._fields else [()]
        swept += [(version, flag) for flag in flags]
    return swept


def function(task: str, version: Version) -> Callable[..., torch.Tensor]:
    module = load(version.path)
    if version.config is None:
        entry: Callable[..., torch.Tensor] = getattr(module, FOLDERS[task], None) or module.kernel
        return entry
    config = module.Config(*version.config)
    return lambda *given: module.launch(*given, config)


# ------------------------------------------------------------------------------------------------ compiling ahead


class NoCard:
    """What triton asks of its driver while it compiles."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)


def compile_here(task: str, capability: int, work: list[list[Any]]) -> None:
    """In a process of its own: compile what versions launch for cells, without a card."""
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    driver.set_active(NoCard(capability))
    run = JITFunction.run
    JITFunction.run = lambda self, *a, grid, warmup, **k: run(self, *a, grid=grid, warmup=True, **k)
    known = {c.name: c for c in cells(task, "")}
    for name, path, config, cell in work:
        version = Version(name, path, None if config is None else tuple(config))
        try:
            function(task, version)(*shapes(task, known[cell].case))
        except Exception as error:  # noqa: BLE001 - a version that does not compile says so when it is called
            print(f"{version.label} on {cell}: {error!r:.200}", file=sys.stderr)


def shapes(task: str, case: types.SimpleNamespace) -> tuple[Any, ...]:
    """Arguments without memory."""
    here: dict[str, Any] = {"dtype": torch.bfloat16, "device": "meta"}
    q = torch.empty(case.b, 32, 128, **here)
    if task == "dense":
        k = torch.empty(case.b, 8, case.s, 128, **here)
        return q, k, k, 0.1
    pages = -(-case.s // case.page)
    cache = torch.empty(case.b * pages + 3, case.page, 8, 128, **here)
    table = torch.empty(case.b, pages, dtype=torch.int32, device="meta")
    return q, cache, cache, table, table[:, 0].contiguous(), 0.1


def compile_ahead(task: str, work: list[tuple[Version, str]]) -> None:
    """What differs in splits only is the same code: it goes to one process."""
    began, (major, minor), splits = time.monotonic(), torch.cuda.get_device_capability(), len(SHAPES[task][0])
    parts: dict[tuple[Any, ...], list[list[Any]]] = {}
    for v, cell in work:
        shape = () if v.config is None else (*v.config[:splits], *v.config[splits + 1 :])
        parts.setdefault((v.path, shape), []).append([v.name, v.path, v.config, cell])
    count, shares = max(1, min(len(parts), (os.cpu_count() or 2) - 1, 15)), list(parts.values())
    argv = [sys.executable, __file__, "--task", task, "--compile", str(major * 10 + minor)]
    running = []
    for i in range(count):
        running.append(subprocess.Popen(argv, stdin=subprocess.PIPE, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}))
        pipe = running[-1].stdin
        assert pipe is not None
        pipe.write(json.dumps([each for share in shares[i::count] for each in share]))
        pipe.close()
    for process in running:
        process.wait()
    print(f"compiled ahead: {len(work)} launches in {count} processes, {time.monotonic() - began:.1f} s", flush=True)


# ------------------------------------------------------------------------------------------------ measuring


class Bench:
    """The input sets of a cell and what is right for the first."""

    def __init__(self, task: str, cell: Cell) -> None:
        self.task, self.cell = task, cell
        self.reference = load(str(ROOT / FOLDERS[task] / "reference.py"))
        rng = torch.Generator("cuda").manual_seed(random.SystemRandom().getrandbits(60))
        self.bytes = 4096 * getattr(cell.case, "tokens", cell.case.b * cell.case.s) + 16384 * cell.case.b
        count = min(SETS, math.ceil(COLD / self.bytes)) if cell.timed else 1
        self.sets = [tuple(self.reference.inputs(cell.case, rng).values()) for _ in range(count)]
        self.right = self.reference.reference(*self.sets[0]).double()
        guess = 5 + self.bytes / 4e6
        self.calls = count * max(1, round(LAUNCH_US / guess / count)) if cell.timed else 2

    def error(self, got: torch.Tensor) -> float:
        """Largest over rows of RMS(error) / RMS(row)."""
        off = (got.double() - self.right).square().mean(-1).sqrt() / self.right.square().mean(-1).sqrt()
        return float(torch.nan_to_num(off, nan=math.inf).max())

    def graph(self, call: Callable[..., torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor]]:
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call(*self.sets[0])
            torch.cuda.synchronize()
            graph.capture_begin()  # not torch.cuda.graph(), which collects garbage each time
            try:
                results = [call(*self.sets[i % len(self.sets)]) for i in range(self.calls)]
            finally:
                graph.capture_end()
        graph.replay()
        torch.cuda.synchronize()
        return graph, results

    def time(self, graphs: dict[str, torch.cuda.CUDAGraph], rounds: int) -> dict[str, float]:
        """Median us of a call for each graph, one launch each a round in random order, queued behind a kernel that waits."""
        found: dict[str, list[float]] = {name: [] for name in graphs}
        for _ in range(rounds):
            for name in random.sample(list(graphs), len(graphs)):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda._sleep(400_000)
                start.record()
                graphs[name].replay()
                end.record()
                end.synchronize()
                found[name].append(start.elapsed_time(end) * 1000 / self.calls)
        return {name: statistics.median(times) for name, times in found.items()}


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    return F.scaled_dot_product_attention(q[:, :, None], k, v, scale=scale, enable_gqa=True)[:, :, 0]


def dense_twin(bench: Bench) -> Callable[..., torch.Tensor]:
    """For the paged task: torch's attention on as many tokens without pages, of full length, whatever it is called with."""
    case = bench.cell.case
    made = torch.randn(len(bench.sets), 2, case.b, 8, case.s, 128, device="cuda", dtype=torch.bfloat16)
    turn = iter(range(1 << 60))

    def call(q: torch.Tensor, *rest: Any) -> torch.Tensor:
        k, v = made[next(turn) % len(made)]
        return sdpa(q, k, v, rest[-1])

    return call


class Lines:
    def __init__(self, task: str, out: str) -> None:
        self.task, self.file = task, open(out, "a") if out else None  # noqa: SIM115

    def add(self, bench: Bench, what: str, us: float, error: float) -> None:
        line = {"task": self.task, "cell": bench.cell.name, "version": what, "us": round(us, 3), "error": round(error, 5)}
        line["tb_s"] = round(bench.bytes / us / 1e6, 3) if us else 0.0
        print(json.dumps(line), flush=True)
        if self.file:
            print(json.dumps(line), file=self.file, flush=True)


def attempt(bench: Bench, version: Version) -> tuple[torch.cuda.CUDAGraph | None, float, str]:
    """A graph of the version, its error, and why there is none."""
    try:
        graph, results = bench.graph(function(bench.task, version))
    except Exception as error:  # noqa: BLE001 - out of shared memory, an odd configuration: the next one may do
        return None, math.inf, f"{type(error).__name__}: {error!s:.150}"
    off = max(bench.error(results[i]) for i in range(0, len(results), len(bench.sets)))
    return (graph, off, "") if off <= ERROR else (None, off, f"wrong by {off:.3g}")


def compare(bench: Bench, found: list[Version], lines: Lines) -> dict[str, float]:
    """All versions beside torch: us by name."""
    graphs, errors = {}, {"sdpa": 0.0}
    graphs["sdpa"], results = bench.graph(sdpa if bench.task == "dense" else dense_twin(bench))
    if bench.task == "dense":
        errors["sdpa"] = bench.error(results[0])
    for version in found:
        graph, errors[version.label], why = attempt(bench, version)
        if graph is None:
            print(f"  {bench.cell.name} {version.label}: {why}", flush=True)
        else:
            graphs[version.label] = graph
    times = bench.time(graphs, ROUNDS)
    for name, us in times.items():
        lines.add(bench, name, us, errors[name])
    return times


def sweep(bench: Bench, found: list[Version], seconds: float, lines: Lines) -> dict[str, float]:
    """Configurations in random order until the time is up; the best five again, beside torch and in one go."""
    every = [v._replace(config=(*c, *rest)) for v, rest in sweepable(bench.task, found) for c in configs(bench.task, bench.cell)]
    end, times = time.monotonic() + seconds, {}
    for version in random.sample(every, len(every)):
        if time.monotonic() > end:
            break
        graph, _, why = attempt(bench, version)
        if graph is not None:
            times[version] = bench.time({"": graph}, 3)[""]
        elif "wrong" in why:
            print(f"  {bench.cell.name} {version.label}: {why}", flush=True)
    best = sorted(times, key=times.__getitem__)[:5]
    kept = {v.label: attempt(bench, v)[0] for v in best}
    graphs = {n: g for n, g in kept.items() if g is not None} | {
        "sdpa": bench.graph(sdpa if bench.task == "dense" else dense_twin(bench))[0]
    }
    final = bench.time(graphs, FINAL_ROUNDS)
    print(f"  {bench.cell.name}: {len(times)} of {len(every)} configurations", flush=True)
    for name, us in sorted(final.items(), key=lambda each: each[1]):
        lines.add(bench, f"sweep {name}", us, 0.0)
    return final


# ------------------------------------------------------------------------------------------------ all of it


def check(task: str, found: list[Version], wanted: str) -> None:
    for cell in (c for c in cells(task, wanted) if not c.timed):
        bench = Bench(task, cell)
        for version in found:
            graph, off, why = attempt(bench, version)
            print(f"  {cell.name:20} {version.label:8} " + (f"right, {off:.4f}" if graph is not None else f"WRONG: {why}"), flush=True)


def table(title: str, rows: dict[str, dict[str, float]]) -> None:
    names = list(dict.fromkeys(name for times in rows.values() for name in times))
    print(f"\n{title}, us\n" + " ".join([f"{'':22}", *(f"{n:>9}" for n in names), "  best / sdpa"]))
    for cell, times in rows.items():
        best = min((n for n in times if n != "sdpa"), key=times.__getitem__, default="")
        ratio = f"  {best} {times[best] / times['sdpa']:.3f}" if best else ""
        print(" ".join([f"{cell:22}", *(f"{times.get(n, math.nan):9.2f}" for n in names), ratio]))


def run(task: str, options: argparse.Namespace) -> None:
    found, lines = versions(task), Lines(task, options.out)
    timed = [c for c in cells(task, options.cells) if c.timed]
    work = [(v, c.name) for c in cells(task, options.cells) for v in found]
    if options.seconds:
        swept = sweepable(task, found)
        work += [(v._replace(config=(*c, *rest)), cell.name) for cell in timed for v, rest in swept for c in configs(task, cell)]
    compile_ahead(task, work)
    check(task, found, options.cells)
    rows, best = {}, {}
    for cell in timed:
        bench = Bench(task, cell)
        rows[cell.name] = compare(bench, found, lines)
        if options.seconds:
            best[cell.name] = sweep(bench, found, options.seconds / len(timed), lines)
        del bench
        torch.cuda.empty_cache()
    table(f"{task}: as planned", rows)
    for name, times in best.items():
        print(f"{name:22} " + "; ".join(f"{n} {us:.2f}" for n, us in sorted(times.items(), key=lambda each: each[1])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(FOLDERS), default="dense")
    parser.add_argument("--seconds", type=float, default=0.0, help="of sweep, over all cells")
    parser.add_argument("--cells", default="", help="names of task.toml, with commas")
    parser.add_argument("--out", default="", help="file that gets a line of JSON for each time")
    parser.add_argument("--compile", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        compile_here(options.task, options.compile, json.load(sys.stdin))
    else:
        print(torch.cuda.get_device_name(), torch.__version__, flush=True)
        run(options.task, options)


if __name__ == "__main__":
    main()
