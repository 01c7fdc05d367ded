"""Loading the entry of a task's kernel from its file.

Runs code of the candidate: what it raises comes out as TaskError with its place. Must not know models or slots.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from keepfast.engine.transformers import Fill
from keepfast.errors import TaskError

TUNABLES = "keepfast_tunables"


class Raised(TaskError):
    """The candidate's own code is at fault: not the task, nor what this engine can do."""


class Entry(Struct, frozen=True):
    """`kernels`: names of the Triton functions in its file, as they appear in a trace."""

    function: Callable[..., Any]
    kernels: tuple[str, ...]


def load(fill: Fill, number: int) -> Entry:
    """The entry as a module of its own, with the tunables of its own task. TaskError when it does not load."""
    path = Path(fill.entry_path)
    where = place(fill)
    with heard(fill, f"{path.name} does not load: ", "keepfast check   builds the task"):
        module = _imported(fill, f"keepfast_entry_{number}", path)
    function = getattr(module, fill.entry_symbol, None)
    if not callable(function):
        raise Raised(f"{path.name} defines no function `{fill.entry_symbol}`", where=where, next_step='Name it in `entry = "file.py:name"`')
    if callable(getattr(module, "prepare", None)):
        step = 'keepfast run   with `[rules] prepare = "forbidden"` finds a kernel that takes weights as they are'
        raise TaskError(f"{path.name} defines `prepare`, which no slot of an engine calls yet", where=where, next_step=step)
    return Entry(function, fill.kernels or _jitted(module))


def place(fill: Fill) -> str:
    return f"slot {fill.slot}, task {fill.task}"


@contextmanager
def heard(fill: Fill, what: str, next_step: str | Callable[[], str]) -> Iterator[None]:
    """Inside, code of the candidate runs. What it raises is Raised, with the line of its file; ours pass through."""
    try:
        yield
    except TaskError:
        raise
    except (Exception, SystemExit) as error:  # the candidate's code may raise anything; it is said, not hidden
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == fill.entry_path]
        at = f" (line {frames[-1].lineno} of {Path(fill.entry_path).name})" if frames else ""
        step = next_step if isinstance(next_step, str) else next_step()
        raise Raised(f"{what}{type(error).__name__}: {error}{at}", where=place(fill), next_step=step) from error


def _imported(fill: Fill, name: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a file that can be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before, known = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(path.parent), *fill.path]
    if fill.tunables:
        sys.modules[TUNABLES] = _tunables(fill.tunables)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
        _forget(known, (path.parent, *map(Path, fill.path)))
    return module


def _tunables(text: str) -> ModuleType:
    made = ModuleType(TUNABLES)
    exec(compile(text, f"{TUNABLES}.py", "exec"), made.__dict__)
    return made


def _forget(known: set[str], folders: tuple[Path, ...]) -> None:
    """Neighbours that the entry imported by bare names: another task may have others of the same names."""
    sys.modules.pop(TUNABLES, None)
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file and any(Path(file).is_relative_to(folder) for folder in folders):
            del sys.modules[name]


def _jitted(module: ModuleType) -> tuple[str, ...]:
    """Names of Triton functions, also under autotuners and heuristics."""
    found = []
    for value in vars(module).values():
        inner = value
        while type(inner).__module__.startswith("triton") and hasattr(inner, "fn"):
            inner = inner.fn
        if inner is not value:
            found.append(str(getattr(inner, "__name__", "")))
    return tuple(dict.fromkeys(name for name in found if name))
