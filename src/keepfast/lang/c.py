"""C and C++: `.c` as C, `.cpp`, `.cc` and `.cxx` as C++, with one call of the gcc driver.

The flags are the human's; what is added makes a shared object whose only name is `keepfast_call`, places loops and functions
on cache lines so that layout matters less, and keeps folder names out of the result. Must not know walls or processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from keepfast import native
from keepfast.lang.base import OUTPUT, Step
from keepfast.model import File, Task

SUFFIXES_C = (".c",)
SUFFIXES_CPP = (".cpp", ".cc", ".cxx")
SHARED = ("-fPIC", "-shared", "-fvisibility=hidden", "-falign-functions=64", "-falign-loops=32", "-Wl,--build-id=none", "-Wl,-z,defs")
REPRODUCIBLE = ("-ffile-prefix-map={tree}/=", "-ffile-prefix-map={generated}/=", "-ffile-prefix-map={scratch}=.")
STATELESS = ("-nostartfiles", "-Wl,-z,relro,-z,now")  # then nothing is writable but what a source asks for, see judge/rules.py
MESSAGES = ("-fdiagnostics-color=never", "-fmax-errors=20")


class C:
    name = "c"

    def claims(self, paths: Sequence[str]) -> bool:
        return all(PurePosixPath(path).suffix in (*SUFFIXES_C, *SUFFIXES_CPP) for path in paths)

    def plan(self, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str]) -> tuple[Step, ...]:
        sources = [task.entry_path, *task.build.sources]
        cpp = any(PurePosixPath(source).suffix in SUFFIXES_CPP for source in sources)
        include = [f"-I{{tree}}/{folder}" for folder in task.build.include]
        gcc = native.cpp_compiler() if cpp else native.compiler()
        argv = [
            str(gcc), *task.build.flags, *SHARED, *(STATELESS if task.rules.no_state else ()), *REPRODUCIBLE, *MESSAGES,
            "-I{generated}", *include,
            *(f"{{tree}}/{source}" for source in sources), "{generated}/shim.c", "-o", f"{{scratch}}/{OUTPUT}",
            *task.build.libs, *(("-lstdc++",) if cpp else ()), "-Wl,--as-needed", "-lm",
        ]  # fmt: skip
        return (Step(tuple(argv)),)
