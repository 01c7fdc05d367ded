"""The rules of a task that what was built can be held to: no state, no `prepare`, no library. Without running anything.

Must not know GPUs; `judge/gpu/rules.py` looks at plans. What is looked at is what the loader will map, not what a source says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from keepfast.judge import elf
from keepfast.judge.endings import MAX_DETAIL, Failure
from keepfast.model import Fact, File, Reason, Rules, Task
from keepfast.task.rules import prepares

# What gcc links by itself: the C library and the run-time libraries of its languages. Everything else is a library of kernels.
COMPILERS = re.compile(r"(?:libc|libm|libmvec|libgcc_s|libstdc\+\+|libgomp|libpthread|ld-linux[\w-]*)\.so(?:\.\d+)*")
LOADERS = ("dlopen", "dlmopen", "dlsym", "dlvsym")


def applies(rules: Rules) -> bool:
    """Whether there is anything to look at."""
    return rules.no_state or rules.prepare == "forbidden" or rules.library_kernels == "forbidden"


def check(task: Task, files: Sequence[File], library: Path) -> Failure | tuple[Fact, ...]:
    """The first rule that the shared object or its sources break, or what was found."""
    if failure := prepared(task, files):
        return failure
    try:
        found = elf.contents(library)
    except ValueError as problem:
        return Failure(Reason.RULE, f"its shared object cannot be looked into: {problem}"[:MAX_DETAIL])
    return _stateful(task.rules, found) or _foreign(task.rules, found) or _facts(task.rules)


def prepared(task: Task, files: Sequence[File]) -> Failure | None:
    """A `prepare` in the file of the entry, where the task forbids it."""
    entry = next((file for file in files if file.path == task.entry_path), None)
    if task.rules.prepare != "forbidden" or entry is None or not prepares(entry.path, entry.data.decode("utf-8", "replace")):
        return None
    return Failure(Reason.RULE, f"{entry.path} defines `prepare`: the task forbids work on weights outside the call")


def _stateful(rules: Rules, found: elf.Contents) -> Failure | None:
    if not rules.no_state or not found.kept:
        return None
    said = ", ".join(f"{size} bytes in {name}" for name, size in found.kept[:4])
    what = f"has memory that outlives a call ({said}); the task says `no_state`: no writable global, static or thread-local variable"
    return Failure(Reason.RULE, what[:MAX_DETAIL])


def _foreign(rules: Rules, found: elf.Contents) -> Failure | None:
    if rules.library_kernels != "forbidden":
        return None
    libraries = [name for name in found.libraries if not COMPILERS.fullmatch(name)]
    loaders = [name for name in found.imports if name.partition("@")[0] in LOADERS]
    if not libraries and not loaders:
        return None
    said = f"is linked with {', '.join(libraries[:4])}" if libraries else f"loads libraries by itself ({', '.join(loaders[:4])})"
    return Failure(Reason.RULE, f"{said}; the task forbids kernels of libraries"[:MAX_DETAIL])


def _facts(rules: Rules) -> tuple[Fact, ...]:
    held = (("no_state", rules.no_state), ("prepare", rules.prepare == "forbidden"), ("libraries", rules.library_kernels == "forbidden"))
    return tuple(Fact(name, "none") for name, asked in held if asked)
