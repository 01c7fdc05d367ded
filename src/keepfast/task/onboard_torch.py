"""Writes a task folder for a GPU: around an operator of torch, a KernelBench problem, a Python function where it stands,
or what was captured of either.

Everything is worked out before the first byte is written, and a folder that does not load is taken away again.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from keepfast.task import newfolder, onboard_captured, onboard_kernelbench, onboard_op, onboard_python
from keepfast.task.onboard_captured import CapturedOrigin
from keepfast.task.onboard_kernelbench import KernelBenchOrigin
from keepfast.task.onboard_op import OpOrigin
from keepfast.task.onboard_python import PythonOrigin


class Written(Struct, frozen=True):
    """The files written, and what is to be said about them."""

    paths: tuple[Path, ...]
    notes: tuple[str, ...]


def init(folder: Path, origin: OpOrigin | KernelBenchOrigin | PythonOrigin | CapturedOrigin) -> Written:
    """Write a task into the new `folder`. UsageError or TaskError for whatever does not fit, with nothing left on disk."""
    folder = newfolder.free(folder)
    if isinstance(origin, CapturedOrigin):
        origin = onboard_captured.origin(origin)
    if isinstance(origin, PythonOrigin):
        made = onboard_python.files(folder, origin)
    else:
        made = onboard_op.files(origin) if isinstance(origin, OpOrigin) else onboard_kernelbench.files(origin)
    return Written(newfolder.write(folder, made.files), made.notes)
