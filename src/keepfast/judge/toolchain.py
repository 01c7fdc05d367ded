"""Where the compiler lives: the folders a build may read and execute.

Must not know walls or tasks.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from keepfast import native

# Not all of /usr: /usr/share and /usr/local/src hold what is no compiler's.
USUAL = (
    "/bin", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec", "/usr/include",
    "/usr/local/bin", "/usr/local/include", "/usr/local/lib", "/usr/local/lib64", "/usr/local/libexec",
    "/etc/alternatives", "/etc/ld.so.cache", "/nix/store", "/gnu/store",
)  # fmt: skip


def folders() -> tuple[str, ...]:
    """Absolute paths; some may not exist."""
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
