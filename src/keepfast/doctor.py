"""`keepfast doctor`: what walls, compiler, git, clock and devices can do here, and what to do about each lack."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator

from msgspec import Struct

from keepfast import exits
from keepfast.device import cpu, health, nvidia, nvml
from keepfast.device import nvidia_software as software
from keepfast.errors import KeepfastError
from keepfast.walls.base import Walls


class Finding(Struct, frozen=True):
    """One line: `state` is ok, weak, noisy, lack or none."""

    name: str
    state: str
    words: str


class Doctor(Struct, frozen=True):
    """What `doctor --json` prints."""

    schema: str
    findings: tuple[Finding, ...]


def doctor(json: bool) -> int:
    """Look, print, return 0; or 5 when a run cannot judge here at all."""
    from keepfast.cli.out import emit, say
    from keepfast.report.escape import line

    tools = (_tool(name, f"Debian, Ubuntu: apt install {name}   Fedora: dnf install {name}") for name in ("gcc", "git"))
    found = (_python(), *tools, *_walls(), _clock(), *_gpu())
    if json:
        emit(Doctor("keepfast.doctor/1", found))
    else:
        say([f"{f.name:<18} {f.state:<6}  {line(f.words)}" for f in found])
    return exits.OK if all(f.state != "lack" for f in found if f.name in ("gcc", "git", "walls")) else 5


def _python() -> Finding:
    return Finding("python", "ok", platform.python_version())


def _tool(name: str, install: str) -> Finding:
    if shutil.which(name) is None:
        return Finding(name, "lack", f"not found. {install}")
    said = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout
    return Finding(name, "ok", said.splitlines()[0] if said else "")


def _walls() -> tuple[Finding, ...]:
    """Strength first, then each piece with what to do about its lack."""
    try:
        walls = Walls.detect()
    except KeepfastError as error:
        return (Finding("walls", "lack", error.text()),)
    words = {
        "walls": "candidates run in namespaces of their own, behind Landlock and seccomp",
        "partial": "no namespaces here: Landlock or seccomp still deny files and network; verdicts say `partial`",
        "none": "candidates would run with your rights: a run needs --trust-candidate",
    }[walls.strength]
    state = {"walls": "ok", "partial": "weak", "none": "lack"}[walls.strength]
    return (Finding("walls", state, words), *(Finding(f"  {f.name}", "", f.value) for f in walls.facts))


def _clock() -> Finding:
    """Who else uses the cores, and how steadily they run."""
    from keepfast.judge.contents import Library

    busy = health.neighbours()
    if busy:
        who = ", ".join(f"{n.name} (pid {n.pid}, {n.share:.0%} of core {n.core})" for n in busy[:3])
        words = f"other processes use the cores: {who}. Stop them, or expect void rounds and to judge large gains only"
        return Finding("clock", "noisy", words)
    try:
        share = health.spread(Library().sentinel_ns)
    except KeepfastError as error:
        return Finding("clock", "lack", error.text())
    words = f"a fixed piece of arithmetic varies by {share:.2%} (quartiles); keepfast calibrate TASK says which gains can be judged"
    return Finding("clock", "ok" if share < 0.02 else "noisy", f"{cpu.fingerprint('').cpu}, {cpu.fingerprint('').cores} cores; {words}")


# --------------------------------------------------------------------------------------------- GPU


def _gpu() -> tuple[Finding, ...]:
    """Nothing of CUDA or torch is imported: NVML answers for the cards, packaging for the rest."""
    if not nvml.present():
        return (Finding("gpu", "none", "CPU tasks need no GPU"),)
    try:
        with nvml.opened() as ask:
            return (*_cards(ask), _gpu_packages(), _torch(), _cupti(), _nvcc())
    except KeepfastError as error:
        return (Finding("gpu", "lack", _said(error)), _gpu_packages())


def _cards(ask: nvml.Nvml) -> Iterator[Finding]:
    found = nvidia.cards(ask)
    driver, (major, minor) = nvidia.drivers(ask)
    words = f"{len(found)} card{'s' * (len(found) != 1)}; driver {driver} offers CUDA {major}.{minor}"
    problem = ""
    if found:
        try:
            nvidia.choose(None, ask)
        except KeepfastError as error:
            problem = f"; {_said(error)}"
    yield Finding("gpu", "lack" if problem or not found else "ok", words + problem)
    for card in found:
        yield _card(card, nvidia.health(card.uuid, ask))


def _said(error: KeepfastError) -> str:
    return f"{error.what}: {error.next_step}" if error.next_step else error.what


def _card(card: nvidia.Card, look: nvidia.Health) -> Finding:
    state = "ok"
    words = [f"{card.name}, sm_{card.capability[0]}{card.capability[1]}, {card.memory_bytes / 2**30:.0f} GiB, {card.uuid}"]
    words += [f"{look.temperature} C, SM {look.sm_mhz} MHz, {look.utilisation} % used"]
    words += [f"ECC {'on' if card.ecc else 'off'}"] if card.ecc is not None else []
    words += [f"MIG on, {len(card.slices)} instances"] if card.mig else []
    tolerated = [process.words() for process in look.processes if process.display or process.hidden]
    words += [f"also used by {', '.join(tolerated)}"] if tolerated else []
    if look.spoiled:
        state, words = "noisy", [*words, f"slower than it could be: {', '.join(look.spoiled)}"]
    if look.busy:
        users = ", ".join(process.words() for process in look.busy)
        state, words = "noisy", [*words, f"other processes use it: {users}. Stop them, or expect void rounds"]
    if missing := [node for node in nvidia.nodes(card) if not os.path.exists(node) and not node.endswith("-tools")]:
        state, words = "lack", [*words, f"{', '.join(missing)} missing: sudo nvidia-modprobe -u -c={card.minor}"]
    return Finding(f"  card {card.index}", state, "; ".join(words))


def _gpu_packages() -> Finding:
    """What every GPU task needs, whatever it is written in."""
    found = {name: software.version(name) for name in ("cuda-bindings", "nvidia-ml-py")}
    have = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if lacking := [name for name, version in found.items() if not version]:
        return Finding("  packages", "lack", f"not installed: {', '.join(lacking)}: {nvml.INSTALL}")
    return Finding("  packages", "ok", have)


def _torch() -> Finding:
    torch, triton, wanted = software.version("torch"), software.version("triton"), software.triton_wanted()
    have = f"torch {torch or 'none'}, triton {triton or 'none'}"
    if not torch:
        return Finding("  torch", "lack", f"{have}: references of GPU tasks are torch: pip install 'keepfast[torch]'")
    if torch.endswith("+cpu"):
        return Finding(
            "  torch", "lack", f"{have}: this torch is built without CUDA: https://pytorch.org/get-started   names the one for this driver"
        )
    if not triton:
        return Finding("  torch", "weak", f"{have}: pip install 'triton{f'=={wanted}' if wanted else '>=3.2'}'   for candidates in Triton")
    if wanted and triton.split("+")[0] != wanted.split("+")[0]:
        return Finding("  torch", "weak", f"{have}, and this torch asks for triton {wanted}: pip install 'triton=={wanted}'")
    return Finding("  torch", "ok", have + (" (as torch asks)" if wanted else ""))


def _cupti() -> Finding:
    if path := software.cupti():
        return Finding("  cupti", "ok", path)
    return Finding(
        "  cupti", "lack", "no libcupti: it comes with torch's CUDA packages (pip install nvidia-cuda-cupti) and with the CUDA toolkit"
    )


def _nvcc() -> Finding:
    path, release = software.nvcc()
    if path:
        return Finding("  nvcc", "ok", f"{release}, {path}")
    return Finding("  nvcc", "weak", "none: needed for candidates in CUDA C++ only; install the CUDA toolkit")
