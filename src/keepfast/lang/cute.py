"""CuTe DSL: kernels in Python with CUTLASS's layouts, compiled at their first call, which is the capture's.

A build reads the grammar only. Must not import cutlass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keepfast.lang import arch as archs
from keepfast.lang import base, python
from keepfast.model import File, Task

FIRST = 80


class Cute:
    name = "cute"

    def __init__(self, arch: str = "") -> None:
        self.arch = arch

    def claims(self, paths: Sequence[str]) -> bool:
        return base.all_of(paths, python.SUFFIXES)

    def plan(self, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str]) -> tuple[base.Step, ...]:
        archs.needs("CuTe DSL", self.arch, FIRST)
        return python.syntax(files)
