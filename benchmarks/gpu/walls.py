"""CUDA, torch, Triton, CUPTI and capture inside the walls of a GPU worker, on this machine's card.

    python benchmarks/gpu/walls.py [--card N]

Prints the card, who uses it and its fingerprint; then starts this file inside walls of the profile `device` and prints what worked
there. When something did not, it is tried again with one wall less at a time, which names the wall. Needs torch, Triton, gcc and one
NVIDIA GPU; exit status 0 when everything worked behind all walls.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 150.0


# --------------------------------------------------------------------------------------------- inside


def step(name: str, action: Callable[[], object]) -> None:
    began = time.perf_counter()
    try:
        said = action()
    except Exception as error:  # noqa: BLE001  whatever is raised is the answer
        print(f"{name}: FAILED {type(error).__name__}: {str(error)[:600]}", flush=True)
        return
    print(f"{name}: ok {1000 * (time.perf_counter() - began):.0f} ms {'' if said is None else said}", flush=True)


def cupti() -> str:
    from keepfast.device import nvidia_software

    subscriber, callback = ctypes.c_void_p(), ctypes.CFUNCTYPE(None)(lambda: None)
    path = nvidia_software.cupti() or "libcupti.so"
    if code := ctypes.CDLL(path).cuptiSubscribe(ctypes.byref(subscriber), callback, None):
        raise RuntimeError(f"cuptiSubscribe answers {code}")
    return path


def driver() -> str:
    cuda = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    for call, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        if code := getattr(cuda, call)(*arguments):
            raise RuntimeError(f"{call} answers {code}")
    return f"{count.value} device"


def matmul(torch: Any) -> str:
    a = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    return f"{float((a @ a).float().abs().mean()):.2f} {torch.cuda.get_device_name()}"


def pinned(torch: Any) -> str:
    torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True).cuda()
    return "256 MiB"


def graph(torch: Any) -> str:
    x = torch.ones(1 << 20, device="cuda")
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        y = x * 2 + 1
    made.replay()
    torch.cuda.synchronize()
    return f"{float(y.sum()):.0f}"


def triton_kernel(torch: Any) -> str:
    """The kernel's source must lie in a file: Triton reads it."""
    folder = Path("kernels")
    folder.mkdir()
    (folder / "twice.py").write_text(
        "import triton, triton.language as tl\n"
        "@triton.jit\n"
        "def twice(x, y, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + at, 2.0 * tl.load(x + at, mask=at < n), mask=at < n)\n"
    )
    sys.path.insert(0, str(folder.resolve()))
    from twice import twice

    x = torch.ones(4096, device="cuda")
    y = torch.empty_like(x)
    twice[(4,)](x, y, 4096, BLOCK=1024)
    return f"{float(y.sum()):.0f}"


def exported(torch: Any) -> str:
    """Memory that another process can map, as the judge shares its draws."""
    from keepfast.gpu import driver as own

    cu, device = own.driver(), own.Device(0)
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = int(device.handle)
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    prop.requestedHandleTypes = kind
    memory = own.ok(cu.cuMemCreate(2 << 20, prop, 0), "cuMemCreate")
    return f"descriptor {int(own.ok(cu.cuMemExportToShareableHandle(memory, kind, 0), 'cuMemExportToShareableHandle'))}"


def inside() -> None:
    print("nodes:", *sorted(name for name in os.listdir("/dev") if not name.startswith(".")))
    print("maps:", sum(1 for _ in open("/proc/self/maps")), "proc/driver/nvidia:", os.path.isdir("/proc/driver/nvidia"))  # noqa: SIM115
    step("cupti", cupti)
    step("driver", driver)
    import torch

    for action in (matmul, pinned, graph, triton_kernel, exported):
        step(action.__name__, lambda action=action: action(torch))
    step("compile", lambda: float(torch.compile(lambda x: torch.softmax(x * 2, -1))(torch.ones(64, 64, device="cuda")).sum()))
    print(f"torch held {torch.cuda.memory_reserved() >> 20} MiB; end")


# --------------------------------------------------------------------------------------------- outside


def walled(walls: Any, card: Any) -> str:
    from keepfast.device import nvidia
    from keepfast.judge import toolchain
    from keepfast.walls.base import MIB, Wall

    folder = walls.folder()
    env = (*toolchain.python_environment(), ("CUDA_VISIBLE_DEVICES", card.visible), ("TORCHINDUCTOR_COMPILE_THREADS", "1"))
    read = (*toolchain.python_folders(), str(Path(__file__).resolve()))
    size = {"scratch_bytes": 1024 * MIB, "file_bytes": 512 * MIB, "processes": 512, "cpu_seconds": int(SECONDS)}
    wall = Wall("device", str(folder / "scratch"), read, env=env, devices=nvidia.nodes(card), **size)
    with tempfile.TemporaryFile() as said:
        with walls.spawn(
            wall, (sys.executable, str(Path(__file__).resolve()), "--inside"), stdout=said.fileno(), stderr=said.fileno()
        ) as worker:
            status = worker.wait(SECONDS)
        said.seek(0)
        return said.read().decode(errors="replace") + f"status {status}\n"


def good(said: str) -> bool:
    return "FAILED" not in said and said.endswith("end\nstatus 0\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--card", help="index or UUID")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        inside()
        return 0
    from msgspec.structs import replace

    from keepfast.device import nvidia
    from keepfast.walls.base import Walls

    card, walls = nvidia.choose(given.card), Walls.detect()
    print(card, nvidia.nodes(card), nvidia.health(card.uuid), nvidia.fingerprint(walls.strength, card.uuid), sep="\n")
    print(walls.strength, walls.mode, *(f"{fact.name}: {fact.value};" for fact in walls.facts))
    with nvidia.held_card(card.uuid), nvidia.Watcher(card.uuid) as watcher:
        print("in the way:", watcher.fit(5.0), "before:", watcher.before())
        print(said := walled(walls, card))
        print("after:", watcher.after(), "notes:", watcher.notes)
        fewer = {
            "without seccomp": {"seccomp": False},
            "without Landlock": {"landlock": 0},
            "without both": {"seccomp": False, "landlock": 0},
        }
        for words, change in fewer.items() if not good(said) else ():
            print(words, walled(replace(walls, **change), card), sep="\n")
    return 0 if good(said) else 1


if __name__ == "__main__":
    sys.exit(main())
