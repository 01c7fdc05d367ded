"""A/A on a GPU: two different launch plans of equal meaning in one launcher, with refresh, compare and wash.

    python benchmarks/gpu/aa.py --out results.json [--rounds 12]

Captures each kernel twice (two processes, two arenas; Triton kernels from two sources), then times the plans against each
other, a fresh launcher process a round. Appends a line a round, so it can be stopped and started again. Needs torch, triton,
cuda-bindings, g++ and one NVIDIA GPU; prints the card.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPARISONS = (("rms16", "again"), ("rms16", "same"), ("rms4096", "again"), ("gemm4096", "again"), ("rms4096", "more"))
ARENA = 16 << 30


def capture(kernel: str, variant: str, base: int, out: Path) -> None:
    """In a process of its own: run the calls under capture, write plan and places."""
    import ctypes

    sys.path.insert(0, str(HERE))
    from keepfast.capture.cupti import Images

    images = Images()
    import torch
    from kernels import WIDTH, spec

    from keepfast.capture.graph import Recorder
    from keepfast.launcher.plan import Segment, encode

    library = out.parent / "arena.so"
    arena = ctypes.CDLL(str(library))
    arena.arena_mapped.restype = ctypes.c_ulonglong
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "arena_alloc", "arena_free")
    torch.cuda.memory.change_current_allocator(allocator)
    if code := arena.arena_open(ctypes.c_ulonglong(base), ctypes.c_ulonglong(ARENA)):
        raise SystemExit(f"the arena at {base:#x} was refused ({code})")
    calls, in_rows, out_rows, maker = spec(kernel, variant)
    in_bytes, out_bytes = calls * in_rows * WIDTH * 2, calls * out_rows * WIDTH * 2
    memory = torch.empty(in_bytes + out_bytes + (64 << 20), dtype=torch.uint8, device="cuda")
    given = memory[:in_bytes].view(torch.bfloat16).view(calls, in_rows, WIDTH)
    made = memory[in_bytes : in_bytes + out_bytes].view(torch.bfloat16).view(calls, out_rows, WIDTH)
    given.normal_()
    work = [maker(given[i], made[i]) for i in range(calls)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for one in work[:2]:
            one()
        torch.cuda.synchronize()
        plan = Recorder(stream.cuda_stream, images).record(work, (Segment(base, arena.arena_mapped()),))
    out.write_bytes(encode(plan))
    places = {"base": memory.data_ptr(), "calls": calls, "in_rows": in_rows, "out_rows": out_rows, "width": WIDTH * 2}
    out.with_suffix(".json").write_text(json.dumps({"places": places, "nodes": len(plan.nodes), "images": [len(i) for i in plan.images]}))


def one_round(first: Path, second: Path, blocks: int) -> None:
    """In a process of its own: rebuild both plans, time one round, print it."""
    import msgspec
    import numpy as np

    from keepfast.launcher.driver import Device
    from keepfast.launcher.pair import Pair, Sets
    from keepfast.launcher.plan import decode

    began = time.monotonic()
    rng = random.SystemRandom()
    order = rng.randrange(2)  # which plan is loaded first
    paths = (first, second)
    plans = {i: decode(paths[i].read_bytes()) for i in ((0, 1) if order else (1, 0))}
    sets = tuple(msgspec.convert(json.loads(p.with_suffix(".json").read_text())["places"], Sets) for p in paths)
    device = Device()
    values = np.random.default_rng().standard_normal((512, sets[0].width // 2), dtype=np.float32)
    pool = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()  # bfloat16, cut
    pair = Pair(device, (plans[0], plans[1]), sets, pool, random.Random(rng.getrandbits(64)))
    ready = time.monotonic() - began
    found = pair.round(blocks)
    print(json.dumps(msgspec.to_builtins(found) | {"ready_s": ready, "total_s": time.monotonic() - began, "card": device.name}))


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def arena_base() -> int:
    """A random multiple of 32 MiB far from what the driver and the C library use."""
    return 0x10_0000_0000 * random.SystemRandom().randrange(64, 512) + (32 << 20) * random.SystemRandom().randrange(1024)


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu_aa.json"))
    words.add_argument("--rounds", type=int, default=12)
    words.add_argument("--captures", type=int, default=1, help="captures of every pair, each with so many rounds")
    words.add_argument("--only", default="", help="kernel:variant[,kernel:variant]")
    words.add_argument("--blocks", type=int, default=10)
    words.add_argument("--folder", type=Path, default=Path("/tmp/keepfast-aa"))
    words.add_argument("step", nargs="*")
    given = words.parse_args()
    if given.step[:1] == ["capture"]:
        return capture(given.step[1], given.step[2], int(given.step[3], 0), Path(given.step[4]))
    if given.step[:1] == ["round"]:
        return one_round(Path(given.step[1]), Path(given.step[2]), given.blocks)
    given.folder.mkdir(parents=True, exist_ok=True)
    source = HERE.parents[1] / "src/keepfast/capture/arena.cpp"
    include = next((f"-I{p}" for p in ("/usr/local/cuda/include",) if Path(p).is_dir()), "-I.")
    subprocess.run(
        ["g++", "-O2", "-shared", "-fPIC", include, str(source), "-o", str(given.folder / "arena.so"), "-l:libcuda.so.1", *libraries()],
        check=True,
    )
    lines = given.out.with_suffix(".jsonl")
    lines.parent.mkdir(parents=True, exist_ok=True)
    wanted = [tuple(w.split(":")) for w in given.only.split(",") if w] or COMPARISONS
    for kernel, variant in wanted:
        for _ in range(given.captures):
            compare(given, kernel, variant, lines)
    summarise(lines, given.out)
    return None


def libraries() -> list[str]:
    """Folders in which the driver's library may lie."""
    return [f"-L{p}" for p in ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/lib64/stubs") if Path(p).is_dir()]


def compare(given: argparse.Namespace, kernel: str, variant: str, lines: Path) -> None:
    plans = {which: given.folder / f"{kernel}-{which}.plan" for which in ("plain", variant)}
    began, number = time.time(), hex(random.getrandbits(32))
    argv = [sys.executable, __file__, "capture", kernel]
    working = [subprocess.Popen([*argv, which, hex(arena_base()), str(path)]) for which, path in plans.items()]
    if any(process.wait() for process in working):
        raise SystemExit(f"a capture of {kernel} failed")
    print(kernel, variant, plans[variant].with_suffix(".json").read_text(), f"captured in {time.time() - began:.1f} s", flush=True)
    for _ in range(given.rounds):
        found = json.loads(run("--blocks", str(given.blocks), "round", str(plans[variant]), str(plans["plain"])))
        found |= {"kernel": kernel, "variant": variant, "capture": number, "when": time.time()}
        with lines.open("a") as out:
            out.write(json.dumps(found) + "\n")
        print(
            f"{kernel} {variant} {100 * found['d']:+.3f} %, {found['first_ms']:.3f} and {found['second_ms']:.3f} ms, "
            f"{found['differ']} differ, {found['poisoned']} poisoned, ready {found['ready_s']:.2f} s, round {found['total_s']:.2f} s",
            flush=True,
        )


def summarise(lines: Path, out: Path) -> None:
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    table = [summary(kernel, variant, rows) for kernel, variant in COMPARISONS]
    table = [row for row in table if row]
    about = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,power.limit", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    out.write_text(
        json.dumps(
            {
                "command": " ".join(sys.argv),
                "date": time.strftime("%Y-%m-%d"),
                "card": about,
                "python": sys.version.split()[0],
                "table": table,
                "rounds": rows,
            },
            indent=1,
        )
    )
    for row in table:
        print(row)


def summary(kernel: str, variant: str, rows: list[dict[str, float]]) -> dict[str, object]:
    """One row of the table; SDs in per cent, between rounds of one capture and between the means of captures."""
    mine = [r for r in rows if (r["kernel"], r["variant"]) == (kernel, variant)]
    captures: dict[object, list[float]] = {}
    for row in mine:
        captures.setdefault(row.get("capture", ""), []).append(row["d"])
    if len(mine) < 2:
        return {}
    means = [statistics.mean(ds) for ds in captures.values()]
    within = [statistics.variance(ds) for ds in captures.values() if len(ds) > 1]
    return {
        "kernel": kernel,
        "variant": variant,
        "captures": len(captures),
        "rounds": len(mine),
        "launch_ms": statistics.median(r["second_ms"] for r in mine),
        "mean_percent": 100 * math.expm1(statistics.mean(means)),
        "sd_rounds_percent": 100 * math.sqrt(statistics.mean(within)),
        "sd_captures_percent": 100 * statistics.stdev(means) if len(means) > 1 else None,
        "capture_means_percent": [100 * math.expm1(m) for m in means],
    }


if __name__ == "__main__":
    main()
