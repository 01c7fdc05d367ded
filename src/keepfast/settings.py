"""The one file that reads the environment. Every other module is handed what it needs.

Each function says which variable it reads and what it means when it is absent.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where compiled helpers are kept: XDG_CACHE_HOME, else ~/.cache (of a user without a home: nowhere); then `keepfast`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~/.cache")
    return Path(next((folder for folder in (base, home) if folder.startswith("/")), "/nonexistent")) / "keepfast"


def crash_point() -> str:
    """KEEPFAST_CRASH, for tests: `NAME` or `NAME@N`, where the process kills itself; absent: nowhere. See docs/crash-points.md."""
    return os.environ.get("KEEPFAST_CRASH", "")


def reference_environment(threads: int) -> dict[str, str]:
    """The user's environment for the human's own Python, with NumPy's libraries held to `threads`."""
    return os.environ | {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "OPENBLAS", "MKL", "BLIS")}


def git_environment() -> dict[str, str]:
    """The user's environment for git, less the GIT_ variables that would point it at another repository or index."""
    keep = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_EXEC_PATH")
    calm = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
    return {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in keep or k.startswith("GIT_CONFIG")} | calm
