"""Cores and cards are leased: two keepfast processes never time on the same one at once, whoever started them.

A lock file each in the temporary folder, held while something is timed; the kernel frees it when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def held(cores: tuple[int, ...], folder: Path | None = None) -> Iterator[None]:
    """Wait for the cores, in order, and hold them. Where no lock file can be made there is no lease: the clock still sees neighbours."""
    with ExitStack() as stack:
        for core in sorted(cores):
            stack.enter_context(_one((folder or Path(tempfile.gettempdir())) / f"keepfast-core-{core}.lock"))
        yield


@contextmanager
def held_card(uuid: str, folder: Path | None = None) -> Iterator[None]:
    """The same for a card, by its UUID."""
    with _one((folder or Path(tempfile.gettempdir())) / f"keepfast-{uuid}.lock"):
        yield


@contextmanager
def _one(path: Path) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
