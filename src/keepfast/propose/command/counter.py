"""The counter where an agent asks the judge while its turn lasts: a Unix socket in its workspace, and `keepfast` on its PATH.

Owns the socket, the one thread that serves it, and the program that the agent calls. Whoever connects is hostile: a request is one short
line, and the files that are asked about are read from the workspace by us, by the rules of `read_back`. One after the other is served; a
peer that is slow, silent or talks nonsense costs seconds and nothing else. Must not know the judge, nor what its words mean.
"""

from __future__ import annotations

import hashlib
import os
import select
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from keepfast.errors import MachineError
from keepfast.propose.agent import Ask, Changed, Job
from keepfast.propose.command import client, secrecy, workspace
from keepfast.propose.quote import plain

PROMPT = (
    "While you work, `keepfast try` in this folder has the judge build, check and roughly time your files as they stand. That can take "
    "minutes, and only a few tries are possible; when a time limit of yours cuts one off, ask again without changing a file.\n"
)
MOST_ASKED = 64  # bytes of a request
MOST_SAID = 16_000  # characters of an answer
REQUEST_S = 2.0  # for a request to arrive in
ANSWER_S = 5.0  # for an answer to be taken in
WAITING = 16  # connections
SYSTEM_PYTHON = "/usr/bin/python3"  # which every cage shows


class Counter:
    """Open for as long as its `with` block runs. `keys`: what must not be handed on."""

    def __init__(self, folder: Path, job: Job, ask: Ask, keys: tuple[str, ...] = ()) -> None:
        self.path = str(folder / client.SOCKET)
        self._folder, self._job, self._ask, self._keys = folder, job, ask, keys
        self._asked_s, self._since = 0.0, 0.0
        self._untold: tuple[bytes, str] | None = None  # an answer whose asker had gone, by the files it is about

    def waited(self) -> float:
        """Seconds that the judge has taken so far. They are not the agent's."""
        since = self._since
        return self._asked_s + (time.monotonic() - since if since else 0.0)

    def __enter__(self) -> Self:
        self._place = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(f"/proc/self/fd/{self._place}/{client.SOCKET}")  # a path of any length
            self._listener.listen(WAITING)
        except OSError as error:
            self._listener.close()
            os.close(self._place)
            raise MachineError(f"no socket can be made in an agent's workspace: {error.strerror}", where=self.path) from error
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, name="keepfast try", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Returns when nobody is served any more. A question under way is waited for: the judge answers one at a time."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        self._listener.close()
        with suppress(OSError):  # what lies there now is the agent's
            os.unlink(client.SOCKET, dir_fd=self._place)
        os.close(self._stop)
        os.close(self._place)

    # ---------------------------------------------------------------------------------- in the thread

    def _serve(self) -> None:
        while self._comes(self._listener.fileno(), select.POLLIN):
            try:
                peer, _ = self._listener.accept()
            except OSError:  # it has gone again, or there is no descriptor for it now
                self._comes(self._stop, select.POLLIN, 0.1)
                continue
            with peer:
                peer.setblocking(False)
                self._meet(peer)

    def _comes(self, fd: int, event: int, seconds: float | None = None) -> bool:
        """Whether `event` comes on `fd` within `seconds` and before the turn ends."""
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(fd, event)
        ready = [found for found, _ in poll.poll(None if seconds is None else max(0.0, seconds) * 1000)]
        return fd in ready and self._stop not in ready

    def _meet(self, peer: socket.socket) -> None:
        request = self._request(peer)
        if not request or _gone(peer):
            return
        if request != client.TRY:
            self._tell(peer, client.NO + client.USAGE.encode() + b"\n")
            return
        yes, words = self._tried()
        told = self._tell(peer, (client.YES if yes else client.NO) + f"{words}\n".encode("utf-8", "replace"))
        if yes and told:
            self._untold = None

    def _request(self, peer: socket.socket) -> bytes:
        """The line that it says, its end included; empty when none comes in time."""
        said, until = b"", time.monotonic() + REQUEST_S
        while b"\n" not in said:
            if len(said) > MOST_ASKED or not self._comes(peer.fileno(), select.POLLIN, until - time.monotonic()):
                return b""
            try:
                part = peer.recv(MOST_ASKED)
            except OSError:
                return b""
            if not part:
                return b""
            said += part
        return said[: said.index(b"\n") + 1]

    def _tell(self, peer: socket.socket, answer: bytes) -> bool:
        """Whether it took the whole answer."""
        until = time.monotonic() + ANSWER_S
        while answer and self._comes(peer.fileno(), select.POLLOUT, until - time.monotonic()):
            try:
                answer = answer[peer.send(answer, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                continue
            except OSError:
                return False
        return not answer

    def _tried(self) -> tuple[bool, str]:
        """The judge's words about the files as they stand; or why it is not asked."""
        try:
            found = workspace.read_back(self._folder, self._job)
        except OSError as error:
            return False, f"The files could not be read: {error.strerror}."
        if found.offence:
            return False, f"This cannot be tried: {found.offence}."
        if secrecy.holds(found.changed, self._keys):
            return False, "This cannot be tried: an editable file holds a key."
        if not found.changed:
            return False, "No editable file differs from what you were given: there is nothing to try."
        left = f"\nLeft out: {', '.join(found.left_out)}." if found.left_out else ""
        return True, self._judged(found.changed) + left

    def _judged(self, changed: Changed) -> str:
        about = hashlib.sha256(msgspec.msgpack.encode(changed)).digest()
        if self._untold is None or self._untold[0] != about:
            self._since = time.monotonic()
            words = self._ask(changed)
            self._asked_s, self._since = self.waited(), 0.0
            self._untold = about, "\n".join(plain(line) for line in words[:MOST_SAID].split("\n"))
        return self._untold[1]


def _gone(peer: socket.socket) -> bool:
    """Whether it has hung up: nothing is asked for someone who does not hear the answer."""
    try:
        return not peer.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


@contextmanager
def opened(folder: Path, job: Job, keys: tuple[str, ...]) -> Iterator[Counter | None]:
    """The counter of a job that may ask; None for one that may not."""
    if job.ask is None:
        yield None
        return
    with Counter(folder, job, job.ask, keys) as counter:
        yield counter


# --------------------------------------------------------------------------------------------- the agent's side


def python() -> str:
    """An interpreter to show to the agent: the system's, which it sees anyhow, else the one below our own environment."""
    if os.access(SYSTEM_PYTHON, os.X_OK):
        return SYSTEM_PYTHON
    own = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return own if os.access(own, os.X_OK) else os.path.realpath(sys.executable)


def install(folder: Path, place: Path, interpreter: str) -> None:
    """Makes `folder` anew, to be put on an agent's PATH, with the program `keepfast` that asks at the counter of the workspace `place`."""
    workspace.clear(folder)
    folder.mkdir(mode=0o700)
    copy, program = folder / "client.py", folder / "keepfast"
    copy.write_bytes(Path(client.__file__).read_bytes())
    words = " ".join(shlex.quote(word) for word in (interpreter, "-IS", str(copy), str(place)))
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
