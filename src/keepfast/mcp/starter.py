"""Starting the run that an agent outside is judged by, when there is none.

Owns the decision whether one may be started, and the process that starts it. Never a second time: a run whose budget ended, or that a
human stopped while the agent worked, is the human's to go on with. Must not know tools.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import IO

from keepfast.cli.stand import Stand
from keepfast.errors import UsageError
from keepfast.mcp.door import NotYet, door_of
from keepfast.propose.agents import one_line, quoted

RESUMED = ("running", "stopped", "interrupted")  # states of a run that may go on; `running` without a process: it was killed
MOST_SAID = 4000  # bytes that are looked at of what a run printed
LAST_SAID = 390  # characters of its end that are told


class Starter:
    """`proposer`: what `keepfast run --proposer` is given. `keepfast`: how that is called."""

    def __init__(self, proposer: str, keepfast: tuple[str, ...] = (sys.executable, "-m", "keepfast")) -> None:
        self._proposer, self._keepfast = proposer, keepfast
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._began = False

    def see_to_it(self, stand: Stand) -> str:
        """Has a run going on, or says in words why there is none yet. UsageError when there will be none."""
        if self._starting():
            return "The run is being prepared (the task is linted, the machine is measured, the start is judged); ask again in a while."
        if stand.ledger is None or stand.ledger.holder() is None:
            return self._begin(stand)
        try:
            door_of(stand)
        except NotYet as error:
            return error.text()
        return ""

    def _starting(self) -> bool:
        """Whether it is under way. UsageError, once, with what it printed, when it failed."""
        if self._process is None or self._process.poll() is None:
            return self._process is not None
        code, self._process = self._process.returncode, None
        text = self._printed()
        if code:
            self._began = False
            raise UsageError(f"no run could be started: {text}", next_step=f"keepfast run TASK --proposer {self._proposer}")
        return False

    def _printed(self) -> str:
        """What it said, its end."""
        if self._output is None:
            return ""
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - MOST_SAID))
        text = self._output.read().decode("utf-8", "replace")
        self.close()
        return _quoted(text)

    def close(self) -> None:
        """Listens no more. What was started goes on."""
        if self._output is not None:
            self._output.close()
            self._output = None

    def _begin(self, stand: Stand) -> str:
        run = stand.run
        again = f"a human may go on: keepfast run TASK --proposer {self._proposer} --detach, with --resume after keepfast budget raise"
        if self._began and run is None:
            self._began = False  # nothing was spent
            raise UsageError(
                f"the run ended while it was prepared, and said last: {_last_said(stand)}", next_step="call it again to try anew"
            )
        if self._began and run is not None:
            raise UsageError(f"run {run.id} has ended ({run.state}), and said last: {_last_said(stand)}", next_step=again)
        if run is not None and run.state not in RESUMED:
            raise UsageError(f"run {run.id} of this task has ended: {run.state}; no further one is begun from here", next_step=again)
        argv = [*self._keepfast, "run", stand.task.folder, "--proposer", self._proposer, "--detach"]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  it is read when the process has ended
        self._process = subprocess.Popen(
            [*argv, *(["--resume"] if run is not None else [])],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            cwd=stand.task.folder,
            start_new_session=True,
        )
        self._began = True
        how = f"Run {run.id} goes on" if run is not None else "A run was started"
        return (
            f"{how}, in the background, as no run was going on: `keepfast run --proposer {self._proposer} --detach`. It is being prepared."
        )


def _last_said(stand: Stand) -> str:
    """The end of what runs in the background print."""
    log = stand.repo.state / "run.log" if stand.repo is not None else None
    if log is None or not log.is_file():
        return "nothing"
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_SAID))
        return _quoted(file.read().decode("utf-8", "replace"))


def _quoted(text: str) -> str:
    """The end of it as one line of data."""
    return quoted(one_line(text, MOST_SAID)[-LAST_SAID:].strip() or "nothing")
