"""Triton: kernels in Python, compiled at their first call, which is the capture's.

A build reads the grammar only; whether the kernels compile, and to what, is asked by `judge/gate.py`. Must not import triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keepfast.lang import arch as archs
from keepfast.lang import base, python
from keepfast.model import File, Task

FIRST = 80  # Triton 3 makes no code for older GPUs


class Triton:
    name = "triton"

    def __init__(self, arch: str = "") -> None:
        self.arch = arch

    def claims(self, paths: Sequence[str]) -> bool:
        return base.all_of(paths, python.SUFFIXES)

    def plan(self, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str]) -> tuple[base.Step, ...]:
        archs.needs("Triton", self.arch, FIRST)
        return python.syntax(files)
