"""nvcc: where it is, what a process must read to run it, and the options that all calls share.

Found on PATH, under /usr/local/cuda, in the environment of this interpreter (conda), and among its packages (pip). What stands
on PATH may be a script that starts the real one, so nvcc itself is asked where its toolkit lies.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from keepfast import native
from keepfast.errors import MachineError
from keepfast.lang.arch import capability, specific
from keepfast.lang.base import MIB, Limits

LIMITS = Limits(seconds=180.0, memory_bytes=16384 * MIB, scratch_bytes=1024 * MIB)
INSTALL = (
    "apt install nvidia-cuda-toolkit   (Debian, Ubuntu)   or   conda install -c nvidia cuda-nvcc cuda-cudart-dev   or   "
    "pip install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl"
)
USUAL = ("/usr/local/cuda/bin", "/opt/cuda/bin")


class Toolkit(Struct, frozen=True):
    """`nvcc` to call; `root`: the folder that holds its programs, headers and libraries; `options` for headers and libraries elsewhere."""

    nvcc: Path
    root: Path
    options: tuple[str, ...] = ()

    @property
    def read(self) -> tuple[str, ...]:
        """What a process must be able to read: the toolkit, unless it is a system folder, which compilers read anyway."""
        elsewhere = [option[2:] for option in self.options]
        return tuple(path for path in (str(self.nvcc), str(self.root), *elsewhere) if not _shallow(Path(path)))


def toolkit(arch: str) -> Toolkit:
    """The CUDA toolkit of this machine. MachineError when there is none, or when it cannot compile for `arch` with this gcc."""
    program = next((path for folder in _folders() if os.access(path := folder / "nvcc", os.X_OK)), None)
    if program is None:
        what = "no CUDA compiler: `nvcc` is not on PATH, not under /usr/local/cuda, and not in this Python's environment"
        raise MachineError(what, next_step=INSTALL)
    found = _asked(str(program))
    _works(found, arch)
    return found


def common(found: Toolkit, arch: str) -> tuple[str, ...]:
    """Options of every call: the architecture, lines for profilers, a runtime of its own, resources of each kernel in the log."""
    number = specific(arch)
    target = f"-gencode=arch=compute_{number},code=sm_{number}"
    return (target, "-lineinfo", "-cudart=static", "-Xptxas=-v", f"-ccbin={native.cpp_compiler()}", *found.options)


@lru_cache(maxsize=4)
def _asked(nvcc: str) -> Toolkit:
    root = _root(Path(nvcc))
    return Toolkit(Path(nvcc), root, _elsewhere(root))


def _works(found: Toolkit, arch: str) -> None:
    """Reads an empty file for `arch`: so that what is this machine's fault is never a candidate's."""
    argv = [str(found.nvcc), "-E", "-x", "cu", *common(found, arch), "/dev/null", "-o", "/dev/null"]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return
    said = done.stderr + done.stdout
    line = next((text.strip() for text in said.splitlines() if "fatal" in text or "error" in text), said.strip())[:200]
    steps = {
        "Unsupported gpu architecture": f"A CUDA toolkit that knows sm_{capability(arch)}: a newer one for a new GPU, an older for an old",
        "unsupported GNU version": "A gcc that this toolkit knows, first on PATH, or a newer toolkit",
    }
    step = next((step for text, step in steps.items() if text in said), INSTALL)
    raise MachineError(f"{found.nvcc} cannot compile for sm_{capability(arch)}: {line}", next_step=step)


def _folders() -> Iterator[Path]:
    yield from (Path(folder) for folder in os.get_exec_path() if folder.startswith("/"))
    yield from map(Path, USUAL)
    yield Path(sys.prefix) / "bin"
    yield from (folder / "bin" for folder in _packages())


def _packages() -> tuple[Path, ...]:
    """Folders of NVIDIA's Python packages: site-packages/nvidia/*."""
    spec = importlib.util.find_spec("nvidia")
    tops = spec.submodule_search_locations if spec and spec.submodule_search_locations else ()
    return tuple(folder for top in tops for folder in sorted(Path(top).glob("*")) if folder.is_dir())


def _root(nvcc: Path) -> Path:
    """The toolkit's folder, as nvcc says it."""
    argv = [str(nvcc), "--dryrun", "-x", "cu", "-c", "-o", "/dev/null", "/dev/null"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    said = re.search(r"^#\$ TOP=(.+)$", done.stdout + done.stderr, re.MULTILINE)
    if said is None:
        line = next((text for text in (done.stderr + done.stdout).splitlines() if text.strip()), "it says nothing")
        raise MachineError(f"{nvcc} does not work: {line[:200]}", next_step=INSTALL)
    return Path(said[1].strip()).resolve()


def _elsewhere(root: Path) -> tuple[str, ...]:
    """Where the packages of pip put headers and libraries in folders of their own: options that name them."""
    if any((root / inner / "cuda_runtime.h").is_file() for inner in ("include", "targets/x86_64-linux/include")):
        return ()
    if root == Path("/usr"):
        return ()  # headers among the system's own
    folders = _packages()
    headers = [f"-I{folder / 'include'}" for folder in folders if (folder / "include").is_dir()]
    return (*headers, *(f"-L{folder / 'lib'}" for folder in folders if (folder / "lib" / "libcudart_static.a").is_file()))


def _shallow(path: Path) -> bool:
    """Whether opening `path` would open much else."""
    return path == Path.home() or (path.is_dir() and len(path.parts) < 3)
