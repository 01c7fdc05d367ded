"""The compile gate: what a candidate for a GPU compiles to, on a machine that has none. Nothing is launched, nothing is timed.

CUDA C++ is built as ever, and ptxas says what each kernel takes. Kernels in Python are compiled at their first call, so the entry is
called inside the walls with tensors that have no memory (capture/compile_only). Must not know torch.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from keepfast import settings
from keepfast.capture.compile_only import Job, Report
from keepfast.errors import MachineError, TaskError
from keepfast.gpu.layout import Layout
from keepfast.gpu.messages import Described
from keepfast.gpu.ptxas import resources
from keepfast.judge import builder, toolchain
from keepfast.judge.builder import BuiltTree, Site
from keepfast.judge.endings import MAX_DETAIL, Failure
from keepfast.lang import arch as archs
from keepfast.lang.base import MIB, Limits, Step
from keepfast.model import Fact, File, Reason, Task
from keepfast.task.rules import prepare_is

LIMITS = Limits(seconds=180.0, memory_bytes=16384 * MIB, scratch_bytes=1024 * MIB)
MAX_REPORT = 1 << 20
MAX_FACTS = 32
NEEDS = {"triton": ("torch", "triton"), "torch": ("torch", "triton")}  # languages whose kernels are compiled by a call


def gate(site: Site, task: Task, files: tuple[File, ...], layouts: Sequence[Layout]) -> tuple[Fact, ...] | Failure:
    """Compile `files` for `site.arch`, for the cases that `layouts` describe. Facts: registers, spills and shared memory of each kernel.

    A kernel that does not compile is a Failure. MachineError when this machine lacks a compiler.
    """
    folder = site.walls.folder()
    try:
        made = builder.tree(site, task, files, element_types(layouts), folder / "library.so")
        if isinstance(made, Failure):
            return made
        called = made.library is None and made.language in NEEDS
        found = _called(site, task, made, layouts, folder / "report.json") if called else _of_log(made.log)
        return found if isinstance(found, Failure) else (_summary(site, made, found), *found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def described(task: Task) -> tuple[Layout, ...]:
    """The layout of every case, by the human's reference.py in a process of its own. TaskError with its last line when it fails."""
    argv, request = [sys.executable, "-m", "keepfast.oracle.shapes"], msgspec.msgpack.encode(task)
    done = subprocess.run(argv, input=request, capture_output=True, check=False, env=settings.reference_environment(1))
    if done.returncode == 0:
        return msgspec.msgpack.decode(done.stdout, type=Described).layouts
    words = next((line for line in reversed(done.stderr.decode(errors="replace").splitlines()) if line.strip()), "it said nothing")
    raise TaskError(f"its cases cannot be described without a GPU: {words.strip()[:300]}", where="reference.py")


def element_types(layouts: Sequence[Layout]) -> dict[str, str]:
    """Dtype of every tensor, outputs included."""
    given = {g.name: g.tensor.dtype for layout in layouts for g in layout.given if g.tensor is not None}
    return given | {o.name: o.dtype for layout in layouts for o in layout.outputs}


def _summary(site: Site, made: BuiltTree, found: tuple[Fact, ...]) -> Fact:
    if made.language == "cute":
        return Fact("gate", "is Python; what it compiles to is known on a GPU only, nothing was timed")
    arch = f"sm_{archs.capability(site.arch)}"
    kernels, whole = any(f.name.startswith("kernel ") for f in found), not any(f.name == "note" for f in found)
    if not kernels:
        return Fact("gate", "launches no kernel of its own that could be compiled; nothing was timed")
    return Fact("gate", f"{'' if whole else 'as far as it could be followed, '}compiles for {arch}; nothing was timed")


# --------------------------------------------------------------------------------------------- nvcc


def _of_log(log: str) -> tuple[Fact, ...]:
    kernels = resources(log)[:MAX_FACTS]
    return tuple(_fact(readable(k.name), (k.registers, k.spill_bytes, k.shared_bytes)) for k in kernels)


def readable(name: str) -> str:
    """The name of a C++ function without its types: `norms::row` of `_ZN5norms3rowEPKf`."""
    head = re.match(r"_Z(N|L)?(?=\d)", name)
    at, parts = head.end() if head else len(name), list[str]()
    while number := re.match(r"\d+", name[at:]):
        start, at = at + number.end(), at + number.end() + int(number[0])
        parts.append(name[start:at])
        if at > len(name) or (head and head[1] != "N"):
            break
    plain = at <= len(name) and all(part.isidentifier() for part in parts)
    return ("::".join(part for part in parts if not part.startswith("_GLOBAL__N_")) if plain else "") or name


# --------------------------------------------------------------------------------------------- kernels in Python


def _called(site: Site, task: Task, made: BuiltTree, layouts: Sequence[Layout], out: Path) -> tuple[Fact, ...] | Failure:
    for name in NEEDS[made.language]:
        if importlib.util.find_spec(name) is None:
            raise MachineError(f"{name} is not installed in this Python, so nothing can be compiled", next_step=f"pip install {name}")
    number = archs.capability(site.arch)
    job = Job("", task.entry_path, task.entry_symbol, made.path, number, tuple(layouts), prepare_is(task))
    content = {"generated": (File("job", msgspec.msgpack.encode(job)),), "tree": made.files}
    said = builder.run(site.walls, (_step(),), content, out, "device")  # as a capture worker, without a device
    if isinstance(said, Failure):
        return said
    found = _report(out)
    if isinstance(found, Failure):
        return found
    kernels = (_fact(k.name, (k.registers, k.spill_bytes, k.shared_bytes), f"{k.warps} warps", k.case) for k in found.kernels[:MAX_FACTS])
    return (*kernels, *(Fact("note", plain(note)) for note in found.notes[:MAX_FACTS]))


def _step() -> Step:
    argv = toolchain.python_module("keepfast.capture.compile_only", "{generated}/job", "{scratch}/report.json", "{tree}")
    env = (*toolchain.python_environment(), ("OMP_NUM_THREADS", "1"))
    return Step(argv, "report.json", read=toolchain.python_folders(), env=env, limits=LIMITS)


def _report(path: Path) -> Report | Failure:
    """What the walled process wrote, held to its form; an error in it is a Failure."""
    if path.stat().st_size > MAX_REPORT:
        return Failure(Reason.BUILD, "compiling left a report that is too large")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Report)
    except msgspec.DecodeError:
        return Failure(Reason.BUILD, "compiling left no report")
    if found.error == "machine":
        raise MachineError(plain(found.detail), next_step="pip install --upgrade torch triton   (Triton 3.4 or later)")
    case = f" (case {found.case})" if found.case else ""
    return Failure(Reason.BUILD, plain(found.detail) + plain(case)) if found.error else found


# --------------------------------------------------------------------------------------------- words


def _fact(name: str, numbers: tuple[int, int, int], warps: str = "", case: str = "") -> Fact:
    registers, spills, shared = numbers
    words = (
        f"{registers} registers",
        f"{spills} bytes of spills" if spills else "no spills",
        f"{shared} bytes of shared memory" if shared else "no shared memory",
        warps,
    )
    return Fact(f"kernel {plain(name)[:80]}", ", ".join(filter(None, words)) + (f" (case {plain(case)})" if case else ""))


def plain(text: str) -> str:
    """A line of an untrusted process: one line, printable."""
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_DETAIL]
