"""Running hostile probes in every kind of walls: as root and as an ordinary user, with namespaces and without."""

from __future__ import annotations

import ctypes
import os
import secrets
import select
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from keepfast import native
from keepfast.errors import MachineError
from keepfast.walls import detect, sweep  # noqa: F401  (detect: imported before the user changes)
from keepfast.walls.base import MIB, Wall, Walls, Want

MODES = ("root", "user", "partial as root", "partial as user", "partial as user, Landlock 1")
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
SPARE_UID = 59871 + WORKER  # an ordinary user that nothing else runs as: a limit may count all of its processes
KEPT = 1 << 20


class Result(Struct, frozen=True):
    """Exit status, None when it had to be killed; what it printed; how much of it there was."""

    status: int | None
    text: str
    size: int

    @property
    def values(self) -> dict[str, int]:
        pairs = (line.rpartition("=") for line in self.text.splitlines() if "=" in line)
        return {name: int(value) for name, _, value in pairs if value.lstrip("-").isdigit()}


class Room:
    """Walls of one kind and a folder that others can reach, with the probe in it. Every process started here carries `mark`."""

    def __init__(self, walls: Walls, probe: bytes) -> None:
        self.walls, self.folder, self.mark = walls, walls.folder(), f"mark-{secrets.token_hex(8)}"
        self.probe = self.folder / "probe"
        self.probe.write_bytes(probe)
        self.probe.chmod(0o755)

    def wall(self, **changes: object) -> Wall:
        plain = Wall("runner", str(self.folder / "scratch"), (str(self.probe),), 8 * MIB, 256 * MIB, 1, 5, 4 * MIB)
        return replace(plain, **changes)

    def argv(self, *words: str) -> tuple[str, ...]:
        return (str(self.probe), *words, self.mark)

    def run(self, *words: str, until: str = "", **changes: object) -> Result:
        """Starts a probe, reads what it prints until it is over or has said `until`, ends it, and asserts that nothing of it is left."""
        return self.run_program(self.argv(*words), until=until, **changes)

    def run_program(self, argv: tuple[str, ...], seconds: float = 30.0, until: str = "", **changes: object) -> Result:
        """The same with any program; what it says to stderr counts as printed."""
        reader, writer = os.pipe()
        with open(reader, "rb", buffering=0) as output:
            try:
                walled = self.walls.spawn(self.wall(**changes), argv, stdout=writer, stderr=writer)
            finally:
                os.close(writer)
            with walled:
                text, size, ended = _listen(output.fileno(), time.monotonic() + seconds, until)
                status = walled.wait(30.0 if ended else 0.0)
        self.assert_nothing_left()
        return Result(status, text, size)

    def survivors(self) -> list[int]:
        return [p.pid for p in sweep.processes() if p.state not in "ZX" and self.mark.encode() in _command(p.pid)]

    def assert_nothing_left(self) -> None:
        assert self.survivors() == []
        if self.walls.mode != "plain":
            assert list((self.folder / "scratch").glob("*")) == [], "a walled process wrote to the real scratch folder"

    def close(self) -> None:
        subprocess.run(["rm", "-rf", str(self.folder)], check=True)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _listen(fd: int, deadline: float, until: str) -> tuple[str, int, bool]:
    """What was written, a line with `until` the last, how much of it, and whether all who could write have closed their end."""
    kept, size = b"", 0
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and poll.poll(left * 1000):
        piece = os.read(fd, 1 << 16)
        if not piece:
            return kept.decode(errors="replace"), size, True
        kept, size = kept + piece[: KEPT - len(kept)], size + len(piece)
        if size > 64 * KEPT or (until and until.encode() in kept and kept.endswith(b"\n")):
            break
    return kept.decode(errors="replace"), size, False


# --------------------------------------------------------------------------------------------- kinds of walls

Check = Callable[[Room], None]


def inside(mode: str, probe: bytes, check: Check) -> None:
    """Runs `check` in walls of this kind, as another user where that is asked for. Skips where this machine has none."""
    as_root = mode.endswith("root")
    if as_root and os.getuid() != 0:
        pytest.skip("needs root")
    if as_root or os.getuid() != 0:
        _in_room(mode, probe, check)
    else:
        in_user(lambda: _in_room(mode, probe, check))


def walls_of(mode: str) -> Walls:
    """The walls that a mode's words ask for: partial, none or all, with an older Landlock, without Landlock or without seccomp."""
    want = next((w for w in ("partial", "none") if mode.startswith(w)), "walls")
    try:
        found = Walls.detect(cast(Want, want))
    except MachineError as error:
        pytest.skip(f"no such walls here: {error.what}")
    if mode.endswith("Landlock 1"):
        found = replace(found, landlock=min(found.landlock, 1))
    if mode.endswith("no Landlock"):
        found = replace(found, landlock=0)
    if mode.endswith("no seccomp"):
        found = replace(found, seccomp=False)
    return found


def _in_room(mode: str, probe: bytes, check: Check) -> None:
    room = Room(walls_of(mode), probe)
    try:
        check(room)
        room.assert_nothing_left()
    finally:
        room.close()


def in_user(action: Callable[[], None]) -> None:
    """Runs `action` in a forked child that has become an ordinary user; its failure fails the test, its skip skips it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with _Reported(writer), _home():
            _become_user()
            action()
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as report:
        text = report.read().decode(errors="replace")
    os.waitpid(child, 0)
    if text.startswith("skip "):
        pytest.skip(text[5:])
    assert text == "done", f"as uid {SPARE_UID}:\n{text}"


def _become_user() -> None:
    if not os.access(native.PACKAGE / "native.py", os.R_OK):
        pytest.skip("the package is not readable by others")
    os.setgroups([])
    os.setresgid(SPARE_UID, SPARE_UID, SPARE_UID)
    os.setresuid(SPARE_UID, SPARE_UID, SPARE_UID)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as a process is that was started by this user
    try:
        (native.PACKAGE / "walls" / "enter.c").read_bytes()
    except PermissionError:
        pytest.skip("the package is not readable by others")


@contextmanager
def _home() -> Iterator[None]:
    """A home of its own, so that compiled helpers have a place. One a user: they are compiled once."""
    home = Path(tempfile.gettempdir()) / f"keepfast-tests-{SPARE_UID}"
    home.mkdir(exist_ok=True)
    os.chown(home, SPARE_UID, SPARE_UID)
    os.environ["HOME"] = str(home)
    os.environ.pop("XDG_CACHE_HOME", None)
    yield


class _Reported:
    """Says on `fd` how its block ended, and lets no exception out."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        text = "done" if error is None else "".join(traceback.format_exception(kind, error, trace))
        if isinstance(error, pytest.skip.Exception):
            text = f"skip {error.msg}"
        os.write(self.fd, text[:60000].encode())
        return True
