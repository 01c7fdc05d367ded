"""`keepfast doctor`: what walls, compiler, git, clock and devices can do here, and what to do about each lack."""

from __future__ import annotations

import platform
import shutil
import subprocess

from msgspec import Struct

from keepfast import exits
from keepfast.device import cpu, health
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
    found = (_python(), *tools, *_walls(), _clock(), _gpu())
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


def _gpu() -> Finding:
    return Finding("gpu", "none", "this version judges C and C++ on the CPU; GPU tasks are refused with a sentence")
