"""CUDA C++ with the C ABI: `.cu` by one call of nvcc, for exactly the GPU at hand; no torch needed.

The result exports `keepfast_call` and nothing else, and brings its own CUDA runtime. Flags are the human's. Must not know
walls or processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keepfast.lang import base, nvcc
from keepfast.lang.base import OUTPUT, Step
from keepfast.model import File, Task

ENTRY = (".cu",)
SUFFIXES = (".cu", ".c", ".cpp", ".cc", ".cxx")
HOST = "-Xcompiler=-fPIC,-fvisibility=hidden,-ffile-prefix-map={tree}/=,-ffile-prefix-map={generated}/="
LINK = "-Xlinker=--version-script={generated}/exports.map,--build-id=none,-z,defs"


class Cuda:
    name = "cuda"

    def __init__(self, arch: str = "") -> None:
        self.arch = arch

    def claims(self, paths: Sequence[str]) -> bool:
        return base.all_of(paths[:1], ENTRY) and base.all_of(paths, SUFFIXES)

    def plan(self, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str]) -> tuple[Step, ...]:
        found = nvcc.toolkit(self.arch)
        include = (f"-I{{tree}}/{folder}" for folder in task.build.include)
        sources = (f"{{tree}}/{source}" for source in (task.entry_path, *task.build.sources))
        argv = (
            str(found.nvcc), *task.build.flags, "-shared", *nvcc.common(found, self.arch), HOST, LINK,
            "-I{generated}", *include, *sources, "{generated}/shim.cpp", "-o", f"{{scratch}}/{OUTPUT}", *task.build.libs,
        )  # fmt: skip
        return (Step(argv, read=found.read, path=(str(found.root / "bin"),), limits=nvcc.LIMITS),)
