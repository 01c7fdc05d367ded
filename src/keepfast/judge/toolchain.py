"""Where the compiler lives, and Python with torch, Triton and CUDA: the folders that a walled process may read and execute.

Never a repository: of a package that is run from its source tree only the package. Must not know walls or tasks.
"""

from __future__ import annotations

import glob
import os
import re
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from keepfast import native

# Not all of /usr: /usr/share and /usr/local/src hold what is no compiler's.
USUAL = (
    "/bin", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec", "/usr/include",
    "/usr/local/bin", "/usr/local/include", "/usr/local/lib", "/usr/local/lib64", "/usr/local/libexec",
    "/etc/alternatives", "/etc/ld.so.cache", "/nix/store", "/gnu/store",
)  # fmt: skip

LDCONFIG = "/sbin/ldconfig"  # Triton asks it where libcuda is
DRIVER = ("/usr/local/nvidia", "/usr/lib/wsl/lib", "/etc/nvidia", "/usr/share/nvidia")  # of containers, of WSL, of everyone
DRIVER_LIBRARIES = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib")
TOOLKITS = ("/usr/local/cuda*", "/opt/cuda")
SYSTEM = (LDCONFIG, "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")

# Parts of an installation prefix, a conda environment's among them. Of a virtual environment, which may be a project's folder, fewer.
PARTS = ("bin", "lib", "lib32", "lib64", "include", "libexec", "nvvm", "targets", "x86_64-conda-linux-gnu", "aarch64-conda-linux-gnu")
PACKAGES = ("torch", "triton", "numpy", "msgspec", "cutlass")  # those that may be run from their own source trees
USER = "keepfast"


def folders() -> tuple[str, ...]:
    """What a compiler needs. Absolute paths; some may not exist."""
    gcc = native.compiler()
    real = gcc.resolve()
    if real.is_relative_to("/usr") or real.is_relative_to("/bin"):
        return USUAL
    found = subprocess.run([str(gcc), "-print-search-dirs"], capture_output=True, text=True, check=True).stdout
    listed = [part.lstrip("=") for line in found.splitlines() for part in line.partition(": ")[2].split(":")]
    own = (str(gcc), *_prefix(real), *(path for path in listed if path.startswith("/")))
    return (*USUAL, *own)


def _prefix(gcc: Path) -> tuple[str, ...]:
    """The folder that a compiler of its own was installed to (conda, /opt/...), unless it holds much else."""
    prefix = gcc.parent.parent
    shallow = len(prefix.parts) < 3 or prefix == Path.home()
    return () if shallow else (str(prefix),)


def python_module(module: str, *words: str) -> tuple[str, ...]:
    """How a module of ours is started: nothing of the user's site or of the folder it is in, and no bytecode is written."""
    return (sys.executable, "-s", "-P", "-B", "-m", module, *words)


def python_folders() -> tuple[str, ...]:
    """What a worker needs that is started with this interpreter: Python, its packages, CUDA, and the compiler that Triton calls."""
    places = (*_interpreter(), *installations(), *_source_trees(), str(native.PACKAGE))
    return tuple(dict.fromkeys((*folders(), *places, *_toolkits(), *DRIVER, *_library_folders(), *SYSTEM)))


def python_environment() -> tuple[tuple[str, str], ...]:
    """What such a worker needs in its environment: packages are found where this process found them, the user has a name."""
    toolkits = (f"{path}/bin" for path in _toolkits())
    path = (os.path.dirname(sys.executable), str(native.compiler().parent), *toolkits, "/usr/local/bin", "/usr/bin", "/bin")
    values = {
        "PATH": ":".join(dict.fromkeys(path)),
        "PYTHONPATH": ":".join(_python_path()),
        "PYTHONSAFEPATH": "1",  # not the scratch folder, where it is started
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "USER": USER,  # there is no /etc/passwd to look it up
        "LOGNAME": USER,
    }
    if hidden := [path for path in DRIVER_LIBRARIES if os.path.exists(f"{path}/libcuda.so.1") and path not in _library_folders()]:
        values["LD_LIBRARY_PATH"] = ":".join(hidden)
    return tuple(values.items())


def installations() -> tuple[str, ...]:
    """The folders of sys.path that packages were installed into."""
    return tuple(path for path in _entries() if _is_installation(Path(path)))


def _toolkits() -> tuple[str, ...]:
    """CUDA toolkits; `/usr/local/cuda`, the one this machine means, comes first."""
    return tuple(path for pattern in TOOLKITS for path in sorted(glob.glob(pattern)) if os.path.isdir(path))


def _python_path() -> tuple[str, ...]:
    """Where the worker must look besides its interpreter's own folders."""
    own = {os.path.realpath(path) for path in (*site.getsitepackages(), *sysconfig.get_paths().values())}
    given = [path for path in installations() if os.path.realpath(path) not in own]
    trees = [os.path.dirname(path) for path in (*_source_trees(), str(native.PACKAGE))]
    return tuple(path for path in dict.fromkeys((*given, *trees)) if os.path.realpath(path) not in own)


def _interpreter() -> Iterator[str]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for prefix in (sys.base_prefix, sys.base_exec_prefix):
        yield from (f"{prefix}/{part}" for part in PARTS)
    yield from (f"{sys.prefix}/{part}" for part in ("bin", "pyvenv.cfg", f"include/{version}", f"lib/{version}", f"lib64/{version}"))
    yield from (path for name, path in sysconfig.get_paths().items() if name not in ("data", "scripts"))


def _entries() -> Iterator[str]:
    """Folders of sys.path, but not where this process was started: that is the user's."""
    here = os.getcwd()
    yield from (path for path in dict.fromkeys(sys.path) if path.startswith("/") and path != here and os.path.isdir(path))


def _is_installation(folder: Path) -> bool:
    if (folder / ".git").exists():
        return False
    return folder.name in ("site-packages", "dist-packages") or next(folder.glob("*.dist-info"), None) is not None


def _source_trees() -> tuple[str, ...]:
    """Packages that lie in no installation (editable ones): their own folder, and nothing beside it."""
    places = list(_entries())
    specs = (PathFinder.find_spec(name, places) for name in PACKAGES)
    found = (os.path.dirname(spec.origin) for spec in specs if spec is not None and spec.origin and spec.submodule_search_locations)
    installed = installations()
    return tuple(path for path in found if os.path.dirname(path) not in installed)


def _library_folders() -> tuple[str, ...]:
    """Folders that the loader searches, as ldconfig says; libcuda's among them."""
    if not os.path.exists(LDCONFIG):
        return ()
    said = subprocess.run([LDCONFIG, "-p"], capture_output=True, text=True, errors="replace", check=False).stdout
    found = dict.fromkeys(os.path.dirname(path) for path in re.findall(r" => (/.+)$", said, re.M))
    return tuple(path for path in found if len(Path(path).parts) > 2)  # less "/lib", which walls open anyway, and "/"
