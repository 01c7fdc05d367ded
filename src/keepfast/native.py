"""Our own C files, compiled once on this machine and kept in the user's cache.

Owns the list of programs and libraries, the compiler call and the cache. Must not know what the programs do.
A cache entry is named by the hash of its sources, its flags and the compiler, and appears by one rename: any number of
processes may ask for it at once.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import subprocess
import tempfile
from pathlib import Path

from msgspec import Struct

from keepfast import settings
from keepfast.errors import MachineError

PACKAGE = Path(__file__).parent
WARNINGS = ("-Wall", "-Wextra", "-Wno-missing-field-initializers")


WRAPPERS = ("ccache", "distcc", "icecc")  # they stand in front of a compiler and write to folders of their own


class Source(Struct, frozen=True):
    """C files relative to the package. `headers` are not compiled, but a change of them is a change."""

    files: tuple[str, ...]
    headers: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    libs: tuple[str, ...] = ()


PROGRAMS = {
    "enter": Source(("walls/enter.c", "walls/view.c", "walls/landlock.c", "walls/filter.c"), ("walls/enter.h",)),
    "runner": Source(("runner/runner.c",), libs=("-ldl", "-pthread")),
}
LIBRARIES = {
    "arena": Source(("capture/arena.c",), flags=("-shared", "-fPIC"), libs=("-ldl", "-pthread")),
    "contents": Source(("judge/contents.c",), flags=("-O3", "-march=native", "-shared", "-fPIC"), libs=("-lm",)),
}


def program(name: str) -> Path:
    """The executable `name`, compiled if this machine has not done so yet. MachineError without a compiler."""
    return _built(name, PROGRAMS[name])


def library(name: str) -> Path:
    """The shared library `name`, as `program` does."""
    return _built(f"{name}.so", LIBRARIES[name])


def compiler() -> Path:
    """The C compiler of this machine; MachineError with the package to install when there is none."""
    for name in ("gcc", "cc"):
        for folder in os.get_exec_path():
            found = os.path.abspath(os.path.join(folder, name))
            if os.path.isfile(found) and os.access(found, os.X_OK) and os.path.basename(os.path.realpath(found)) not in WRAPPERS:
                return Path(found)
    raise MachineError(
        "no C compiler: neither `gcc` nor `cc` is on PATH",
        next_step="apt install gcc libc6-dev   (Debian, Ubuntu)   or   dnf install gcc glibc-devel   (Fedora)",
    )


def cpp_compiler() -> Path:
    """The same program, when it can compile C++ too; MachineError with the package to install when it cannot."""
    gcc = compiler()
    found = subprocess.run([str(gcc), "-print-prog-name=cc1plus"], capture_output=True, text=True, check=False).stdout.strip()
    if found == "cc1plus":
        raise MachineError("no C++ compiler", next_step="apt install g++   (Debian, Ubuntu)   or   dnf install gcc-c++   (Fedora)")
    return gcc


def _built(name: str, source: Source) -> Path:
    gcc = compiler()
    key = _key(source, gcc)
    for folder in (settings.cache_folder() / key, Path(tempfile.gettempdir()) / f"keepfast-{os.getuid()}-{key}"):
        if os.path.isfile(folder / name) and _private(folder):
            return folder / name
        if _writable(folder):
            return _compile(gcc, source, folder / name)
    return _compile(gcc, source, Path(tempfile.mkdtemp(prefix="keepfast-")) / name)


def _key(source: Source, gcc: Path) -> str:
    about = gcc.stat()
    digest = hashlib.sha256(f"{gcc} {about.st_size} {about.st_mtime_ns} {platform.machine()} {source.flags} {source.libs}".encode())
    for file in (*source.files, *source.headers):
        digest.update(file.encode() + b"\0" + (PACKAGE / file).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _private(folder: Path) -> bool:
    """Nobody else can have put a file there: what lies in it is executed."""
    about = folder.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError:
        return False
    return _private(folder) and os.access(folder, os.W_OK)


def _compile(gcc: Path, source: Source, out: Path) -> Path:
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".new-") as scratch:
        fresh = Path(scratch) / out.name
        files = [str(PACKAGE / file) for file in source.files]
        argv = [str(gcc), "-O2", "-std=gnu11", *WARNINGS, *source.flags, *files, "-o", str(fresh), *source.libs]
        env = {"PATH": f"{gcc.parent}:{os.defpath}", "LC_ALL": "C", "TMPDIR": scratch}
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", env=env, check=False)
        if done.returncode != 0:
            raise _failed(source, done.stderr)
        fresh.chmod(0o755)
        fresh.replace(out)
    return out


def _failed(source: Source, stderr: str) -> MachineError:
    line = next((text for text in stderr.splitlines() if "error" in text), stderr.strip()[:300])
    package = "apt install libc6-dev linux-libc-dev   (Debian, Ubuntu)   or   dnf install glibc-devel kernel-headers   (Fedora)"
    return MachineError(f"cannot compile {source.files[0]}: {line}", next_step=f"when a header is missing: {package}")
