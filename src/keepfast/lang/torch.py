"""PyTorch: a function in Python, and beside it, when [build] sources names C++ or CUDA files, an extension.

An extension registers itself (`TORCH_LIBRARY`) or is imported (`PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)`, as keepfast_extension).
It is compiled against the torch of this interpreter, which is looked up and never imported.
"""

from __future__ import annotations

import importlib.util
import re
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from keepfast import native
from keepfast.errors import MachineError
from keepfast.lang import base, nvcc, python
from keepfast.lang.base import OUTPUT, Limits, Step
from keepfast.model import File, Task

EXTENSION = "keepfast_extension"
CPP, CU = (".cpp", ".cc", ".cxx"), (".cu",)
LIMITS = Limits(seconds=180.0, memory_bytes=8192 * base.MIB, scratch_bytes=1024 * base.MIB)
MAPS = ("-ffile-prefix-map={tree}/=", "-ffile-prefix-map={generated}/=")
# What torch's own builds of extensions say to nvcc.
RELAXED = (
    "--expt-relaxed-constexpr", "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__",
)  # fmt: skip


class Installed(Struct, frozen=True):
    """Where torch lies, and the options that its headers and libraries need."""

    folder: Path
    headers: tuple[str, ...]
    libraries: tuple[str, ...]


class Torch:
    name = "torch"

    def __init__(self, arch: str = "") -> None:
        self.arch = arch

    def claims(self, paths: Sequence[str]) -> bool:
        return base.all_of(paths[:1], python.SUFFIXES) and base.all_of(paths, (*python.SUFFIXES, *CPP, *CU))

    def plan(self, task: Task, files: tuple[File, ...], dtypes: Mapping[str, str]) -> tuple[Step, ...]:
        sources = [source for source in task.build.sources if base.all_of((source,), (*CPP, *CU))]
        steps = python.syntax(files)
        return (*steps, self._extension(task, sources)) if sources else steps

    def _extension(self, task: Task, sources: list[str]) -> Step:
        torch, flags = installed(), task.build.flags
        own = any(flag.lstrip("-").startswith("std") for flag in flags)  # the human's word counts
        headers = (option for option in torch.headers if not (own and option.startswith("-std=")))
        inputs = (*(f"-I{{tree}}/{folder}" for folder in task.build.include), *headers, *(f"{{tree}}/{s}" for s in sources))
        outputs = ("-o", f"{{scratch}}/{OUTPUT}", *torch.libraries, *task.build.libs)
        if not any(base.all_of((source,), CU) for source in sources):
            argv = (str(native.cpp_compiler()), *flags, "-shared", "-fPIC", *MAPS, *inputs, *outputs, "-lstdc++")
            return Step(argv, read=(str(torch.folder), *_python()), limits=LIMITS)
        kit = nvcc.toolkit(self.arch)
        host = f"-Xcompiler=-fPIC,{','.join(MAPS)}"
        argv = (str(kit.nvcc), *flags, "-shared", *nvcc.common(kit, self.arch), *RELAXED, host, *inputs, *outputs)
        return Step(argv, read=(*kit.read, str(torch.folder), *_python()), path=(str(kit.root / "bin"),), limits=nvcc.LIMITS)


def installed() -> Installed:
    """The torch that a candidate will be run with. MachineError when there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise MachineError("torch is not installed in this Python", next_step="pip install torch")
    folder = Path(spec.origin).parent
    include, lib = folder / "include", folder / "lib"
    names = ("c10", "torch", "torch_cpu", "torch_python", "c10_cuda", "torch_cuda")
    linked = (f"-l{name}" for name in names if (lib / f"lib{name}.so").is_file())
    headers = (*_dialect(folder), f"-DTORCH_EXTENSION_NAME={EXTENSION}", f"-I{include}", f"-I{include}/torch/csrc/api/include")
    return Installed(folder, (*headers, *(f"-I{path}" for path in _python())), (f"-L{lib}", *linked))


def _python() -> tuple[str, ...]:
    """Folders of Python's own headers."""
    return tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("include", "platinclude")))


def _dialect(folder: Path) -> tuple[str, ...]:
    """The C++ standard and library that this torch was built with, as its own files say."""
    builds = _text(folder / "utils" / "cpp_extension.py")
    standards = re.findall(r"-std=(c\+\+\d+)", builds)
    old = "-D_GLIBCXX_USE_CXX11_ABI=0" in _text(folder / "share" / "cmake" / "Torch" / "TorchConfig.cmake")
    return (f"-std={max(standards, default='c++17')}", *(("-D_GLIBCXX_USE_CXX11_ABI=0",) if old else ()))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
