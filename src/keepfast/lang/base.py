"""What a language is, and the list of those there are.

A language turns a task and a candidate's files into command lines. Must not know walls, processes or verdicts: who runs the steps
puts the files where the placeholders say.

    {tree}       folder with the readable files of the task and the files of the candidate, paths relative to the task's root
    {generated}  folder with keepfast.h, keepfast_tunables.h, shim.c and shim.cpp
    {scratch}    the one folder a step may write, empty when it begins; it leaves its `output` there
    {made}       the outputs of the steps before
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import PurePosixPath
from typing import Protocol

from msgspec import Struct

from keepfast.errors import TaskError, nearest
from keepfast.model import File, Task

OUTPUT = "out.so"
GROUP = "keepfast.languages"  # entry points: name -> class of a Language
MIB = 1 << 20


class Limits(Struct, frozen=True):
    """What one step may use."""

    seconds: float
    memory_bytes: int  # of addresses, for each process
    scratch_bytes: int


class Step(Struct, frozen=True):
    """One command line, with placeholders. argv[0] is absolute. The output of the last step is the artifact.

    output   the file it leaves in {scratch}, or "" for a step that only checks
    read     further files and folders that it may read and execute, absolute
    path     folders that go before the others on PATH
    env      added to the environment
    limits   None: those of a plain compiler
    """

    argv: tuple[str, ...]
    output: str = OUTPUT
    read: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    limits: Limits | None = None

    def resolved(self, places: Mapping[str, str]) -> tuple[str, ...]:
        """argv with every `{name}` of `places` replaced."""
        found = list(self.argv)
        for name, path in places.items():
            found = [word.replace(f"{{{name}}}", path) for word in found]
        return tuple(found)


class Language(Protocol):
    @property
    def name(self) -> str: ...

    def claims(self, paths: Sequence[str]) -> bool:
        """Whether the entry, the first of `paths`, is of this language and can be built with the others."""
        ...

    def plan(self, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str]) -> tuple[Step, ...]:
        """The steps that build a candidate. Where the last one has an output, that is a shared object: for `c` and `cuda` one that
        exports `keepfast_call`, for `torch` an extension. MachineError when a compiler is not installed."""
        ...


def by_name(name: str, arch: str = "") -> Language:
    """The language called `name`: ours, or one that an installed package offers. TaskError that lists the known ones.

    `arch`: the GPU to compile for, as in "sm_90"; the languages of a CPU need none.
    """
    ours = _ours()
    if name in ours:
        return ours[name](arch)
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in offered:
        known = sorted({*ours, *offered})
        raise TaskError(f"no language `{name}` is installed.{nearest(name, known)}", next_step=f"known: {', '.join(known)}")
    found: Language = offered[name].load()()
    return found


def _ours() -> dict[str, Callable[[str], Language]]:
    from keepfast.lang import c, cuda, cute, torch, triton

    return {"c": lambda _: c.C(), "cuda": cuda.Cuda, "cute": cute.Cute, "torch": torch.Torch, "triton": triton.Triton}


def all_of(paths: Sequence[str], suffixes: Sequence[str]) -> bool:
    """Whether every path ends in one of `suffixes`."""
    return all(PurePosixPath(path).suffix in suffixes for path in paths)
