"""A server beside a benchmark: started, waited for, ended with its whole group, its log kept.

Owns the process and the waiting. Must not know what it serves or what its log means.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from keepfast.engine import process
from keepfast.errors import MachineError

PAUSE_S = 0.1


class Server(Struct, frozen=True):
    """`ready`: a path that answers 200 once it serves, on `port` of this machine."""

    argv: tuple[str, ...]
    ready: str
    port: int
    limit_s: float


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(server: Server, env: Mapping[str, str], cwd: str, log: Path) -> Iterator[None]:
    """The server, ready, for as long as the block runs. MachineError with its last words when it never gets ready."""
    with log.open("wb") as out:
        try:
            child = subprocess.Popen(
                server.argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise _lost(server, f"cannot be started: {error.strerror}", "") from None
        try:
            _await_ready(child, server, log)
            yield
        finally:
            process.end(child)


def text(log: Path) -> str:
    """What it wrote, the last part of it where that is much."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - process.MOST))
        return file.read().decode(errors="replace")


def _await_ready(child: subprocess.Popen[bytes], server: Server, log: Path) -> None:
    until = time.monotonic() + server.limit_s
    while time.monotonic() < until:
        if process.has_ended(child):
            raise _lost(server, "ended before it was ready", text(log))
        if _answers(server):
            return
        time.sleep(PAUSE_S)
    raise _lost(server, f"was not ready within {server.limit_s:g} s", text(log))


def _answers(server: Server) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request("GET", server.ready)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _lost(server: Server, what: str, log: str) -> MachineError:
    lines = [line for line in log.splitlines() if line.strip()]
    words = f": {lines[-1].strip()[:300]}" if lines else ""
    step = "Type the command by hand; `ready` is a path that answers 200, /health when absent"
    return MachineError(f"{server.argv[0]} {what}{words}", where="[engine] server", next_step=step)
