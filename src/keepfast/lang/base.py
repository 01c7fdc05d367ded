"""What a language is, and the list of those there are.

A language turns a task and a candidate's files into command lines. Must not know walls, processes or verdicts: who runs the steps
puts the files where the placeholders say.

    {tree}       folder with the readable files of the task and the files of the candidate, paths relative to the task's root
    {generated}  folder with keepfast.h, keepfast_tunables.h and shim.c
    {scratch}    the one folder a step may write, empty when it begins; it leaves its `output` there
    {made}       the outputs of the steps before
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol

from msgspec import Struct

from keepfast.errors import TaskError, nearest
from keepfast.model import File, Task

OUTPUT = "out.so"
GROUP = "keepfast.languages"  # entry points: name -> class of a Language


class Step(Struct, frozen=True):
    """One command line, with placeholders. argv[0] is absolute. The output of the last step is the artifact."""

    argv: tuple[str, ...]
    output: str = OUTPUT

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
        """The steps that make a shared object exporting `keepfast_call`. MachineError when the compiler is not installed."""
        ...


def by_name(name: str) -> Language:
    """The language called `name`: ours, or one that an installed package offers. TaskError that lists the known ones."""
    from keepfast.lang.c import C

    if name == C.name:
        return C()
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in offered:
        known = sorted({C.name, *offered})
        raise TaskError(f"no language `{name}` is installed.{nearest(name, known)}", next_step=f"known: {', '.join(known)}")
    found: Language = offered[name].load()()
    return found
