"""Artifacts: logs, patches, raw data, stored once under the hash of their contents in `.keepfast/artifacts`.

Knows files. Which artifact is still needed is for the caller to say.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from keepfast import crash
from keepfast.errors import UsageError
from keepfast.ledger.store import errors

FOLDER = "artifacts"
NAME = re.compile(r"[0-9a-f]{64}")
GRACE_SECONDS = 24 * 3600.0  # an artifact is written before the record that names it


class Dropped(Struct, frozen=True):
    """What a cleaning up removed."""

    artifacts: int
    bytes: int


def put(folder: Path, data: bytes) -> str:
    """Store `data`; its sha256. The file appears whole or not at all."""
    name = hashlib.sha256(data).hexdigest()
    target = folder / FOLDER / name
    with errors(target):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, data)
    return name


def get(folder: Path, name: str) -> bytes:
    """The bytes stored under `name`; UsageError when there are none, or when they are not what was stored."""
    target = folder / FOLDER / name
    if not NAME.fullmatch(name) or not target.is_file():
        raise UsageError(f"no artifact {name[:16]} here", where=str(target.parent), next_step="keepfast gc may have dropped it")
    with errors(target):
        data = target.read_bytes()
    if hashlib.sha256(data).hexdigest() != name:
        step = "it was changed on the disk: remove the file; what named it has to be made again"
        raise UsageError(f"artifact {name[:16]} is not what was stored under that name", where=str(target), next_step=step)
    return data


def drop(folder: Path, needed: Collection[str], now: float) -> Dropped:
    """Remove artifacts that are not `needed` and older than a day, and what a killed writer left."""
    top = folder / FOLDER
    count = size = 0
    with errors(top):
        for path in sorted(top.iterdir()) if top.is_dir() else []:
            facts = path.stat()
            if path.name not in needed and now - facts.st_mtime > GRACE_SECONDS:
                path.unlink()
                count, size = count + 1, size + facts.st_size
    return Dropped(count, size)


def _write(target: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix="new-")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        crash.point("artifact-written")
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)
