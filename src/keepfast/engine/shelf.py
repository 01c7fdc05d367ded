"""Cells of a proof that did not come to its end: what was measured of them, for when the same is asked for again.

Owns files, and how long a cell counts. Must not know what is kept of a cell, nor what makes two plans the same.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

FOLDER = "engine"  # of all shelves, beside the ledger
HOURS = 12.0  # that a cell counts: a night
T = TypeVar("T")
Versions = tuple[tuple[str, str], ...]


class Kept(Struct, frozen=True):
    """`versions` of what measured it; `at`: seconds since the epoch."""

    versions: Versions
    at: float
    item: Raw


class Shelf:
    """One file a cell, in a folder for one plan; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, versions: Versions) -> None:
        self.folder, self.versions = folder, versions

    def find(self, cell: str, kind: type[T]) -> tuple[T, float] | None:
        """What was measured within HOURS with the same versions, and how many seconds ago."""
        with suppress(OSError, msgspec.MsgspecError):
            found = msgspec.json.decode(self._path(cell).read_bytes(), type=Kept)
            age = time.time() - found.at
            if found.versions == self.versions and 0 <= age < HOURS * 3600:
                return msgspec.json.decode(found.item, type=kind), age
        return None

    def put(self, cell: str, item: Struct) -> None:
        """A shelf that cannot be written to keeps nothing."""
        with suppress(OSError):
            path = self._path(cell)
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_suffix(".half")
            half.write_bytes(msgspec.json.encode(Kept(self.versions, time.time(), Raw(msgspec.json.encode(item)))))
            half.replace(path)

    def _path(self, cell: str) -> Path:
        if self.folder is None:
            raise FileNotFoundError("no shelf")
        return self.folder / f"{hashlib.sha256(cell.encode()).hexdigest()[:16]}.json"


def swept(base: Path) -> None:
    """Delete folders in `base` that nobody came back to."""
    with suppress(OSError):
        for folder in base.iterdir():
            if time.time() - folder.stat().st_mtime > HOURS * 3600:
                shutil.rmtree(folder, ignore_errors=True)
