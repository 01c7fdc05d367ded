"""One run at a time: an advisory lock on `.keepfast/lock` that dies with its process, and who holds it.

Knows files and processes; knows nothing of the database.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from keepfast.errors import UsageError
from keepfast.ledger.store import errors

FILE = "lock"


class Holder(msgspec.Struct, frozen=True):
    """Who runs on this ledger now."""

    run: str
    pid: int
    started: float  # unix time


@contextmanager
def held(folder: Path, run_id: str) -> Iterator[None]:
    """Hold the lock, or UsageError that names the process which does. The kernel frees it when this process dies, however it dies."""
    with errors(folder / FILE):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _taken(descriptor):
            raise _busy(folder)
        with errors(folder / FILE):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(Holder(run_id, os.getpid(), time.time())), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(folder: Path) -> Holder | None:
    """Who holds the lock now; None when nobody does, even if a killed run left its name in the file."""
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _taken(descriptor, fcntl.LOCK_SH):
            return None
        return _named(folder)
    finally:
        os.close(descriptor)


def _taken(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _named(folder: Path) -> Holder:
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Holder)
    except (msgspec.DecodeError, OSError):
        return Holder("", 0, 0.0)


def _busy(folder: Path) -> UsageError:
    who = _named(folder)
    started = time.strftime("%H:%M", time.localtime(who.started))
    known = f"pid {who.pid}, started {started}" if who.pid else "it has just begun"
    return UsageError(f"another run holds this ledger ({known})", next_step="keepfast status   |   keepfast stop")
