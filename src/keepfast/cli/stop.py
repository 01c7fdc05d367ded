"""`keepfast stop`: end the run that is going on."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from keepfast.cli.args import Json

if TYPE_CHECKING:
    from keepfast.ledger import Ledger

EXAMPLE = "keepfast stop"
BETWEEN_SECONDS = 0.5


def command(
    now: Annotated[bool, typer.Option("--now", help="Do not wait for the experiment in flight; it is judged again on --resume.")] = False,
    json: Json = False,
) -> None:
    """Stop the run that is going on, after the experiment in flight. It can be resumed."""
    from keepfast.cli.done import tell
    from keepfast.cli.place import PREPARING, opened, said
    from keepfast.errors import UsageError

    with opened(readonly=False) as (repo, ledger):
        holder = ledger.holder()
        if holder is None:
            raise UsageError("no run is going on here", where=str(repo.root), next_step="keepfast status")
        if not holder.run:
            raise UsageError(f"{PREPARING} is going on, which takes no messages ({said(holder)})", next_step=f"kill -INT {holder.pid}")
        ledger.post("stop")
        if now:
            _interrupt(ledger)
    when = "now" if now else "after the experiment in flight"
    tell(f"run {holder.run} stops {when}", "keepfast log --follow   |   keepfast run TASK --resume", json=json, queued=not now)


def _interrupt(ledger: Ledger) -> None:
    """As Ctrl-C twice in the run's own terminal. The lock names a living process: the kernel frees it when that ends."""
    from keepfast.errors import UsageError

    for _ in range(2):
        holder = ledger.holder()
        if holder is None or holder.pid <= 0:
            return
        try:
            os.kill(holder.pid, signal.SIGINT)
        except ProcessLookupError:
            return
        except PermissionError:
            what = f"the run belongs to another user (pid {holder.pid})"
            raise UsageError(what, next_step="it was asked to stop after the experiment in flight") from None
        time.sleep(BETWEEN_SECONDS)
