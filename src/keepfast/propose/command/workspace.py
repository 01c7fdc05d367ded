"""The bare folder that an agent works in: laying it out, and reading back what may be taken from it.

Owns both, with the caps. What is read back is hostile: links are not followed, only regular files at editable paths count, sizes are
bounded. Folders are entered by descriptors, so that one which becomes a link while it is read (during a try the agent is alive) leads
nowhere. Must not know CLIs or processes.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from keepfast.errors import UsageError
from keepfast.propose.agent import Changed, Job
from keepfast.propose.command.client import SOCKET
from keepfast.task.paths import matches_any, reaches, unfit

MAX_FILE = 2 << 20
MAX_TOTAL = 16 << 20
MAX_FILES = 500
MAX_DEPTH = 20
MAX_ENTRIES = 50_000  # looked at below the folders that editable paths lie in

BRIEF, CONTEXT = "BRIEF.md", "context"
CLOSED = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # a folder that is none, is closed, or is gone by now


class Found(Struct, frozen=True):
    """What a workspace holds after a turn.

    changed   as in `Turn`
    left_out  what was not taken, and why, in words
    offence   why nothing of it can be taken; "" when it can
    """

    changed: Changed = ()
    left_out: tuple[str, ...] = ()
    offence: str = ""


def lay_out(folder: Path, job: Job) -> tuple[str, ...]:
    """Makes `folder` anew with what the job says, and nothing else. Returns the paths in it that are for reading only."""
    clear(folder)
    folder.mkdir(parents=True, mode=0o700)
    for file in job.files:
        _write(folder, file.path, file.data, 0o755 if file.executable else 0o644)
    texts = [(BRIEF, job.brief), *((f"{CONTEXT}/{page.name}", page.text) for page in job.pages)]
    for file in job.readable:
        _write(folder, file.path, file.data, 0o555 if file.executable else 0o444)
    for path, text in texts:
        _write(folder, path, text.encode("utf-8", "replace"), 0o444)
    fixed = [BRIEF, *([CONTEXT] if job.pages else []), *(f.path for f in job.readable)]
    return tuple(str(folder / path) for path in fixed)


def clear(folder: Path) -> None:
    """Moves a folder out of the way and removes it, as far as what an agent left there can be removed."""
    if not os.path.lexists(folder):
        return
    aside = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}")
    folder.rename(aside)
    with suppress(OSError, RecursionError):
        if aside.is_symlink() or not aside.is_dir():
            aside.unlink()
        else:
            _open_up(aside)
            shutil.rmtree(aside)


def _open_up(folder: Path) -> None:
    os.chmod(folder, 0o700)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _open_up(Path(entry.path))


def _write(folder: Path, path: str, data: bytes, mode: int) -> None:
    why = unfit(path)
    if why is not None:
        raise UsageError(f"`{path}` cannot lie in an agent's workspace: it {why}")
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(place, "xb") as file:
            file.write(data)
    except FileExistsError:
        raise UsageError(
            f"`{path}` would lie in an agent's workspace twice",
            next_step=f"rename the file of the task: `{BRIEF}` and `{CONTEXT}/` are keepfast's there, and a readable file is not editable",
        ) from None
    place.chmod(mode)


def read_back(folder: Path, job: Job) -> Found:
    """What differs from the job's files, of regular files at editable paths."""
    with _entered(folder, None) as top:
        if top is None:
            return Found(offence="its workspace is gone")
        with closing(_walk(top, "", job.editable)) as entries:
            return _taken(entries, job)


def _taken(entries: Iterator[tuple[str, int]], job: Job) -> Found:
    before = {f.path: f.data for f in job.files}
    after: dict[str, bytes] = {}
    left_out: list[str] = []
    total = 0
    for number, (path, folder) in enumerate(entries):
        if number >= MAX_ENTRIES:
            return Found(offence=f"more than {MAX_ENTRIES} files lie where editable files are")
        if not matches_any(job.editable, path):
            continue
        data = _read(path.rpartition("/")[2], folder)
        why = _unwanted(path, data, path in before)
        if why and any(known == path or known.startswith(path + "/") for known in before):
            return Found(offence=f"{path!r} {why}")
        if why or data is None:
            left_out.append(f"{path!r} {why}")
            continue
        after[path], total = data, total + len(data)
        if total > MAX_TOTAL or len(after) > MAX_FILES:
            return Found(offence=f"more than {MAX_FILES} files or {MAX_TOTAL >> 20} MiB lie at editable paths")
    changed = [(p, data) for p, data in after.items() if before.get(p) != data]
    gone = [(p, None) for p in before if p not in after]
    return Found(tuple(sorted([*changed, *gone])), tuple(left_out[:20]))


def _unwanted(path: str, data: bytes | None, known: bool) -> str:
    """Why a file is not taken. Of new ones, what a build leaves behind (binary files) is not."""
    if data is None:
        return "is a link, no regular file, or closed to reading"
    if not known and b"\0" in data:
        return "is binary"
    if len(data) > MAX_FILE:
        return f"is larger than {MAX_FILE >> 20} MiB"
    return f"has a name that {why}" if (why := unfit(path)) else ""


def _walk(folder: int, below: str, editable: tuple[str, ...]) -> Generator[tuple[str, int], None, None]:
    """Paths of entries that are no folders, where an editable path could lie, each with the open folder that it is in."""
    if below.count("/") > MAX_DEPTH:
        return
    with os.scandir(folder) as entries:
        listed = sorted(islice(entries, MAX_ENTRIES + 1), key=lambda e: e.name)
    for entry in listed:
        path = below + entry.name
        if not entry.is_dir(follow_symlinks=False):
            if path != SOCKET:
                yield path, folder
        elif any(reaches(pattern, path + "/") for pattern in editable):
            with _entered(entry.name, folder) as inner:
                if inner is not None:
                    yield from _walk(inner, path + "/", editable)


@contextmanager
def _entered(name: str | Path, folder: int | None) -> Iterator[int | None]:
    """An open folder; None for one that cannot be entered, which holds nothing."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno not in CLOSED:
            raise
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _read(name: str, folder: int) -> bytes | None:
    """The first MAX_FILE bytes and one; None when it is no regular file or cannot be opened."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(MAX_FILE + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else None
