"""Results in one file, and back: a folder of results packed, and unpacked into another one that may have results of its own.

Lines of *.jsonl are put together, those that are there first; of every other file the packed one counts. Must not know what is in them.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from keepfast.errors import UsageError

NAME = "results.tar.gz"
LOG_BYTES = 100_000  # of a log, its end
MOST_BYTES = 64 << 20  # of one file that is unpacked
LOGS = "logs"


def pack(work: Path, out: Path) -> Path:
    """All files of `work` as OUT/results.tar.gz, which is whole at any time."""
    out.mkdir(parents=True, exist_ok=True)
    half = out / f".{NAME}"
    with tarfile.open(half, "w:gz", compresslevel=6) as archive:
        for path in files(work):
            data = path.read_bytes()
            if path.parent.name == LOGS:
                data = data[-LOG_BYTES:]
            about = tarfile.TarInfo(path.relative_to(work).as_posix())
            about.size = len(data)
            archive.addfile(about, BytesIO(data))
    os.replace(half, out / NAME)
    return out / NAME


def files(work: Path) -> Iterator[Path]:
    yield from (path for path in sorted(work.rglob("*")) if path.is_file() and not path.is_symlink() and not path.name.startswith("."))


def unpack(source: Path, work: Path) -> int:
    """Files from a bundle, or from the folder that one lies in, into `work`; how many. UsageError when there is none."""
    path = source / NAME if source.is_dir() else source
    if not path.is_file():
        raise UsageError(f"no {NAME} there", where=str(source), next_step="--from FOLDER   names what an earlier --out was")
    count = 0
    with tarfile.open(path, "r:gz") as archive:
        for about in archive:
            data = archive.extractfile(about) if about.isfile() and about.size <= MOST_BYTES else None
            if data is not None:
                place(work, about.name, data.read())
                count += 1
    return count


def place(work: Path, name: str, data: bytes) -> None:
    target = (work / name).resolve()
    if not target.is_relative_to(work.resolve()):
        raise UsageError(f"`{name}` lies outside the folder", where=NAME)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(merged(target.read_bytes() if target.is_file() else b"", data) if name.endswith(".jsonl") else data)


def merged(ours: bytes, theirs: bytes) -> bytes:
    """Lines of both, each once, in the order of their first appearance."""
    lines = dict.fromkeys(line for line in (*ours.splitlines(), *theirs.splitlines()) if line.strip())
    return b"".join(line + b"\n" for line in lines)
