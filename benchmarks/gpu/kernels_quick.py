"""How fast are the GPU examples on this card? Start, deck entries and baselines of each task, over its timed cases.

    python benchmarks/gpu/kernels_quick.py [--task softmax,quant] [--only REGEX] [--cases REGEX] [--all] [--out lines.jsonl]
    python benchmarks/gpu/kernels_quick.py --sweep softmax/010-bulk-copies [--limit 60]     settings of one version's tunables

Not the judge: no proof of anything, but a table in a minute. A call is timed inside a CUDA graph of calls on memory of their own,
after the L2 was filled with something else; median of some replays. Processes beside each other compile and check, then one after
the other times. Entries that are wrong on purpose, and those that tune themselves, are left out without --all. Needs torch, triton
and one NVIDIA GPU; --sweep also needs keepfast's own dependencies.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "gpu"
TASKS = ("rmsnorm_plain", "rmsnorm", "softmax", "quant", "matmul")
WRONG = ("leave-residual", "no-epsilon", "no-maximum", "no-floor", "powers-of-two", "whole-depths")
LEFT_OUT = (*WRONG, "autotuned")
START = "start"
LAUNCH_US, SETS_BYTES, MOST_SETS, REPEATS = 1500.0, 8 << 30, 300, 7
WASH_BYTES = 256 << 20
COPY_BYTES = 2 << 30
FAST_BYTES_PER_US, FAST_FLOPS_PER_US = 4.0e6, 6.0e8
ERROR = 2.0**-6  # of a row's RMS: what the judge lets pass in bfloat16
PREPARE_S, TIME_S = 90.0, 25.0


class Variant(NamedTuple):
    """A kernel to time. `version` is a folder of the deck, "start", a patch of the deck on `base`, or a baseline's path."""

    task: str
    version: str
    base: str = ""
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        said = ",".join(f"{name}={value}" for name, value in self.values)
        name = self.version.removesuffix(".py").removesuffix(".patch")
        return f"{name}{f' on {self.base}' if self.base else ''}{f' {said}' if said else ''}"

    @property
    def baseline(self) -> bool:
        return self.version.startswith("baselines/")


class Work(NamedTuple):
    """What a task says about its cases. `written`: arguments that the kernel writes."""

    cases: tuple[SimpleNamespace, ...]
    weights: tuple[float, ...]
    written: tuple[str, ...]
    bytes: str
    flops: str


# --------------------------------------------------------------------------------------------- what there is


def work(task: str, pattern: str) -> Work:
    said = tomllib.loads((EXAMPLES / task / "task.toml").read_text())
    timed = [c for c in said["case"] if c.get("use", "both") != "correct"]
    named = [SimpleNamespace(**{"name": "_".join(f"{a}{c[a]}" for a in said["axes"])} | c) for c in timed]
    chosen = [c for c in named if re.search(pattern, c.name)]
    weights = [float(getattr(c, "weight", 1.0)) for c in chosen]
    written = re.findall(r"Tensor\(\w!\)\s+(\w+)", said["signature"].split("->")[0])
    least = said.get("limit", {})
    return Work(tuple(chosen), tuple(w / sum(weights) for w in weights), tuple(written), least.get("bytes", "0"), least.get("flops", "0"))


def variants(task: str) -> Iterator[Variant]:
    yield from (Variant(task, f"baselines/{p.name}") for p in sorted((EXAMPLES / task / "baselines").glob("*.py")))
    yield Variant(task, START)
    leads = START  # the newest version that a patch may meet
    for entry in sorted(p.name for p in (EXAMPLES / task / "deck").iterdir()):
        if entry.endswith(".patch"):
            yield Variant(task, entry, leads)
        else:
            yield Variant(task, entry)
            leads = entry if not any(w in entry for w in WRONG) else leads


def settings(target: str, limit: int) -> Iterator[Variant]:
    """The version as it is, and other settings of its tunables: all of them, or so many drawn at random."""
    sys.path.insert(0, str(ROOT / "src"))
    from keepfast.task import tunables

    task, _, version = target.partition("/")
    space = tunables.parse((folder_of(Variant(task, version)) / "kernel/tunables.toml").read_text())
    yield Variant(task, version)
    draw, seen = random.Random(1), {space.values}
    tries = range(50 * limit)
    for _ in tries:
        values = tuple((t.name, draw.choice(t.choices)) for t in space.tunables)
        if len(seen) > min(limit, space.size - 1):
            return
        if values not in seen and space.valid(values) is None:
            seen.add(values)
            yield Variant(task, version, "", values)


def folder_of(variant: Variant) -> Path:
    return EXAMPLES / variant.task if variant.version == START else EXAMPLES / variant.task / "deck" / variant.version


def loaded(variant: Variant) -> Any:
    """The function `kernel` of a variant, its tunables as keepfast's builder would hand them in."""
    if variant.baseline:
        return module_at(EXAMPLES / variant.task / variant.version).kernel
    folder = patched(variant) if variant.base else folder_of(variant)
    given, file = ModuleType("keepfast_tunables"), folder / "kernel/tunables.toml"
    said = tomllib.loads(file.read_text()) if file.exists() else {}
    given.__dict__.update({name: t["value"] for name, t in said.items() if isinstance(t, dict)} | dict(variant.values))
    sys.modules["keepfast_tunables"] = given
    return module_at(folder / "kernel/kernel.py").kernel


def patched(variant: Variant) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kernels-quick-"))  # stays: Triton reads the source again when it compiles
    shutil.copytree(folder_of(Variant(variant.task, variant.base)) / "kernel", folder / "kernel")
    patch = EXAMPLES / variant.task / "deck" / variant.version
    subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True, capture_output=True)
    return folder


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"variant_{time.monotonic_ns()}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --------------------------------------------------------------------------------------------- a process on the card


def serve(channel: Connection, pattern: str) -> None:
    """Answers ("prepare" | "time", variant) with rows, until None comes."""
    import torch

    torch.cuda.init()
    worker = Worker(pattern)
    while (asked := channel.recv()) is not None:
        kind, variant = asked
        try:
            channel.send([ceiling()] if variant is None else worker.prepare(variant) if kind == "prepare" else worker.time(variant))
        except Exception as error:  # noqa: BLE001  a kernel may raise anything
            channel.send([{"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160] if str(error).strip() else ''}"}])


class Worker:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.kernels: dict[Variant, Any] = {}
        self.failed: dict[tuple[Variant, str], str] = {}
        self.wash: Any = None

    def prepare(self, variant: Variant) -> list[dict[str, Any]]:
        """Compile for every case and hold the results against the reference."""
        import torch

        self.kernels[variant] = kernel = loaded(variant)
        reference, what = module_at(EXAMPLES / variant.task / "reference.py"), work(variant.task, self.pattern)
        for case in what.cases:
            values = reference.inputs(case, torch.Generator("cuda").manual_seed(3))
            self.failed[variant, case.name] = checked(kernel, reference, case, values, what.written)
            del values
            torch.cuda.empty_cache()
        return [{"case": c.name, "error": self.failed[variant, c.name]} for c in what.cases]

    def time(self, variant: Variant) -> list[dict[str, Any]]:
        import torch

        if self.wash is None:
            self.wash = torch.zeros(WASH_BYTES // 4, dtype=torch.float32, device="cuda")
            warm_up()
        reference, what = module_at(EXAMPLES / variant.task / "reference.py"), work(variant.task, self.pattern)
        rows = []
        for case in what.cases:
            values = reference.inputs(case, torch.Generator("cuda").manual_seed(4))
            least = (number(what.bytes, case), number(what.flops, case))
            rows.append({"case": case.name, **self.timed(self.kernels[variant], values, least), "error": self.failed[variant, case.name]})
            del values
            torch.cuda.empty_cache()
        return rows

    def timed(self, kernel: Any, values: Mapping[str, Any], least: tuple[float, float]) -> dict[str, Any]:
        """Median time of a call in us: `sets` calls in a graph, each on arguments and outputs of its own. `least`: bytes, operations."""
        import torch

        moved, flops = least
        kernel(*values.values())
        fast_us = max(moved / FAST_BYTES_PER_US, flops / FAST_FLOPS_PER_US, 1.5)
        count = max(2, min(MOST_SETS, math.ceil(LAUNCH_US / fast_us), int(SETS_BYTES // moved)))
        sets = [[v.clone() if isinstance(v, torch.Tensor) else v for v in values.values()] for _ in range(count)]
        torch.cuda.synchronize()
        graph, kept = torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(graph):
            kept = [kernel(*each) for each in sets]
        graph.replay()
        times = []
        for _ in range(REPEATS):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.wash.sum()  # reads, so that nothing is left to be written back; hides the launch of the graph as well
            first.record()
            graph.replay()
            last.record()
            last.synchronize()
            times.append(first.elapsed_time(last) * 1000 / count)
        del kept, sets, graph
        us = statistics.median(times)
        return {"us": us, "least_us": min(times), "sets": count, "GBps": moved / us / 1000, "TFLOPs": flops / us / 1e6}


def checked(kernel: Any, reference: ModuleType, case: SimpleNamespace, values: Mapping[str, Any], written: Iterable[str]) -> str:
    """What is wrong with the results for these arguments, or ""."""
    import torch

    given = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in values.items()}
    made = kernel(*given.values())
    got = (*(given[name] for name in written), *as_tuple(made))
    torch.cuda.synchronize()
    expected = as_tuple(reference.reference(**values))
    if any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in zip(got, expected, strict=True)):
        return "shape or type"
    if hasattr(reference, "compare"):
        exact = reference.reference(**{k: v.double() if isinstance(v, torch.Tensor) else v for k, v in values.items()})
        got, exact = (dict(zip(("q", "scale"), each, strict=True)) for each in (got, exact))  # only quant has a compare()
        return reference.compare(case, values, got, exact) or ""
    worst = max(apart(a, b) for a, b in zip(got, expected, strict=True))
    return "" if worst <= ERROR else f"off by {worst:.2g} of a row"


def apart(got: Any, expected: Any) -> float:
    """Largest RMS error of a row over the row's RMS, some rows at a time."""
    worst = 0.0
    step = max(1, (1 << 26) // expected.shape[-1])
    for first in range(0, expected.shape[0], step):
        a, b = got[first : first + step].float(), expected[first : first + step].float()
        ratio = (a - b).square().mean(-1).sqrt() / b.square().mean(-1).sqrt().clamp(min=1e-30)
        worst = max(worst, float(ratio.nan_to_num(nan=math.inf).max()))
    return worst


def as_tuple(made: Any) -> tuple[Any, ...]:
    return () if made is None else tuple(made) if isinstance(made, tuple | list) else (made,)


def number(text: str, case: SimpleNamespace) -> float:
    """An expression of task.toml over the axes of a case."""
    return float(eval(text, {"__builtins__": {}, "min": min, "max": max}, vars(case)))


def warm_up() -> None:
    """Let the clocks rise."""
    import torch

    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        a @ a
        torch.cuda.synchronize()


def ceiling() -> dict[str, Any]:
    """Copy bandwidth of the card, read and written bytes, without the launch."""
    import torch

    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target, times = torch.empty_like(source), []
    for _ in range(6):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        target.copy_(source)
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    about = torch.cuda.get_device_properties(0)
    return {"card": about.name, "processors": about.multi_processor_count, "copy_GBps": 2 * COPY_BYTES / min(times[1:]) / 1e6}


# --------------------------------------------------------------------------------------------- the processes together


class Hand:
    """A process on the card, what it has prepared, and when it must have answered."""

    def __init__(self, pattern: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, pattern), daemon=True)
        self.process.start()
        other.close()
        self.ready: list[Variant] = []
        self.busy: Variant | None = None
        self.until = 0.0

    def ask(self, kind: str, variant: Variant | None, seconds: float) -> None:
        self.channel.send((kind, variant))
        self.busy, self.until = variant, time.monotonic() + seconds

    def answer(self) -> list[dict[str, Any]]:
        """The rows that came, or one that says that the process is gone or hangs."""
        try:
            late = not self.channel.poll(max(0.0, self.until - time.monotonic()))
            return [{"error": "no answer in time: ended"}] if late else self.channel.recv()
        except (EOFError, ConnectionResetError):
            return [{"error": "the process died"}]

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def fatal(rows: list[dict[str, Any]]) -> bool:
    """Whether the process that said this is of no more use: its context is broken, or it is gone."""
    return any(word in str(r.get("error")) for r in rows for word in ("ended", "died", "CUDA error", "illegal", "misaligned"))


def prepared(todo: list[Variant], given: argparse.Namespace, note: Any) -> list[Hand]:
    """Everything compiled and checked, by processes beside each other. What went wrong is noted and dropped."""
    hands = [Hand(given.cases) for _ in range(min(given.workers, len(todo)))]
    waiting = list(todo)
    for hand in hands:
        hand.ask("prepare", waiting.pop(0), PREPARE_S)
    while busy := [h for h in hands if h.busy is not None]:
        soon = min(h.until for h in busy) - time.monotonic()
        ended = wait([h.channel for h in busy], timeout=max(0.0, soon))
        for hand in [h for h in busy if h.channel in ended or time.monotonic() > h.until]:
            variant, rows = hand.busy, hand.answer()
            hand.busy = None
            assert variant is not None
            if "case" in rows[0]:
                hand.ready.append(variant)
            else:
                note(variant, rows)
            if fatal(rows):
                waiting += hand.ready  # another process does these again; most are in the cache
                hand.end()
                hands[hands.index(hand)] = hand = Hand(given.cases)
            if waiting:
                hand.ask("prepare", waiting.pop(0), PREPARE_S)
    return hands


def measured(hands: list[Hand], note: Any) -> dict[str, Any]:
    """One process after the other times what it has prepared. What the card can do comes back."""
    hands[0].ask("ceiling", None, TIME_S)
    found = hands[0].answer()[0]
    for hand in hands:
        for variant in hand.ready:
            if not hand.process.is_alive():
                note(variant, [{"error": "its process was ended because of another variant"}])
                continue
            hand.ask("time", variant, TIME_S)
            rows = hand.answer()
            note(variant, rows)
            if fatal(rows):
                hand.end()
        hand.end()
    return found


# --------------------------------------------------------------------------------------------- the table


def table(task: str, rows: list[dict[str, Any]], pattern: str) -> None:
    what = work(task, pattern)
    names = [c.name for c in what.cases]
    mine = [r for r in rows if r["task"] == task]
    times = {v: {r["case"]: r for r in mine if r["variant"] == v and "us" in r} for v in dict.fromkeys(r["variant"] for r in mine)}
    whole = {v: mean(what.weights, [each[n]["us"] for n in names]) for v, each in times.items() if all(n in each for n in names)}
    fair = [v for v in whole if v.startswith("baselines/") and not any(r["error"] for r in times[v].values())]
    best = min((whole[v] for v in fair), default=math.nan)
    width = max(24, *(len(v) for v in times), 0)
    print(f"\n{task}: us a call (GB/s or TFLOP/s), and the time of the best baseline over this one's, all cases")
    print(" " * width + "".join(f"{n:>22}" for n in names) + f"{'best / this':>14}")
    for v in sorted(times, key=lambda v: whole.get(v, math.inf)) if len(times) > 30 else times:
        cells = "".join(f"{cell(times[v].get(n)):>22}" for n in names)
        said = "; ".join(dict.fromkeys(r["error"] for r in mine if r["variant"] == v and r.get("error")))
        print(f"{v:{width}}{cells}{best / whole[v] if v in whole else math.nan:14.3f}  {said}")
    for n in names if len(times) > 30 else ():
        first = sorted((each[n]["us"], v) for v, each in times.items() if n in each and not each[n]["error"])[:5]
        print(f"fastest at {n}: " + " | ".join(f"{us:.2f} {v}" for us, v in first))


def mean(weights: Iterable[float], times: Iterable[float]) -> float:
    return math.exp(sum(w * math.log(t) for w, t in zip(weights, times, strict=True)))


def cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    rate = f"{row['TFLOPs']:.0f} T" if row["TFLOPs"] > 50 else f"{row['GBps']:.0f}"
    return f"{row['us']:.2f} ({rate})"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--task", default=",".join(TASKS))
    words.add_argument("--only", default="", help="regular expression over names of variants")
    words.add_argument("--cases", default="", help="regular expression over names of cases")
    words.add_argument("--all", action="store_true", help="also entries that are wrong on purpose or tune themselves")
    words.add_argument("--sweep", default="", help="TASK/VERSION: settings of its tunables instead of versions")
    words.add_argument("--limit", type=int, default=60, help="settings of a sweep")
    words.add_argument("--workers", type=int, default=12)
    words.add_argument("--out", type=Path, default=Path("kernels_quick.jsonl"))
    given = words.parse_args()
    began, lines = time.monotonic(), given.out.open("a")
    if given.sweep:
        todo = list(settings(given.sweep, given.limit))
    else:
        todo = [v for t in given.task.split(",") for v in variants(t) if given.all or not any(w in v.label for w in LEFT_OUT)]
    todo = [v for v in todo if re.search(given.only, v.label) and work(v.task, given.cases).cases]
    if not todo:
        raise SystemExit("no variant with a case has such names")
    todo.sort(key=lambda v: "compiled" not in v.version)  # torch.compile takes longest
    rows: list[dict[str, Any]] = []

    def note(variant: Variant, found: list[dict[str, Any]]) -> None:
        for row in found:
            rows.append({"task": variant.task, "variant": variant.label, "case": "", "error": "", **row})
            lines.write(json.dumps(rows[-1]) + "\n")

    hands = prepared(todo, given, note)
    ready = time.monotonic() - began
    about = {**measured(hands, note), "prepared_s": round(ready, 1), "total_s": round(time.monotonic() - began, 1), "when": time.time()}
    lines.write(json.dumps(about) + "\n")
    for task in dict.fromkeys(v.task for v in todo):
        table(task, rows, given.cases)
    print(f"\n{about}\n{given.out}")


if __name__ == "__main__":
    main()
