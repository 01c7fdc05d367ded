"""The human's command for news of a run (`run --notify`): started and forgotten, so that nobody is waited for.

Owns what is news, and that a command which fails or hangs costs the run nothing. Must not know how a run goes on.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable

from keepfast.errors import UsageError
from keepfast.model import Event, Kind
from keepfast.report.escape import line

LIMIT_S = 60.0
MOST = 4  # commands at once; what comes while so many are running is not told


def news(event: Event) -> str:
    """What a human at home would want to know, in a line; empty for all the rest."""
    verdict = event.experiment.verdict if event.experiment is not None else None
    if event.experiment is not None and verdict is not None and event.n > 1 and verdict.kind in (Kind.KEEP, Kind.SUSPECT):
        return f"{verdict.kind}: experiment {event.experiment.n}, {event.experiment.title}: {verdict.detail}"
    if event.kind in ("idea", "end") or (event.kind == "switch" and event.switch and event.switch.state in ("off", "broke")):
        return event.text
    return ""


class Notify:
    """`on_event` that passes everything on, and starts `command TEXT` for what is news. UsageError for a command that is not there."""

    def __init__(self, command: str, then: Callable[[Event], None]) -> None:
        self.argv, self.then = _argv(command), then
        self._free = threading.Semaphore(MOST)

    def __call__(self, event: Event) -> None:
        self.then(event)
        if (text := news(event)) and self._free.acquire(blocking=False):
            threading.Thread(target=self._run, args=(line(text),), daemon=True).start()

    def _run(self, text: str) -> None:
        quiet = subprocess.DEVNULL
        try:
            subprocess.run([*self.argv, text], stdin=quiet, stdout=quiet, stderr=quiet, timeout=LIMIT_S, check=False, process_group=0)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            self._free.release()


def _argv(command: str) -> list[str]:
    try:
        argv = shlex.split(command)
    except ValueError as problem:
        raise UsageError(f"`{command}` cannot be read: {problem}", where="--notify") from None
    if not argv or shutil.which(argv[0]) is None:
        step = "--notify 'notify-send keepfast'"
        raise UsageError(f"`{argv[0] if argv else ''}` was not found on PATH", where="--notify", next_step=step)
    return argv
