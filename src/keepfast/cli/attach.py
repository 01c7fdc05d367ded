"""`keepfast attach`: the live view of a run that goes on elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from keepfast.cli.args import RunName

if TYPE_CHECKING:
    from keepfast.cli.place import Place
    from keepfast.report.live import Live

EXAMPLE = "keepfast attach"
BETWEEN_SECONDS = 0.5


def command(run: RunName = "") -> None:
    """Watch a run that is going on in the background or in another terminal. Ctrl-C leaves the run alone and ends only the watching."""
    from keepfast.cli.out import say
    from keepfast.cli.place import here
    from keepfast.errors import UsageError

    with here(run) as place:
        if not place.running:
            step = "keepfast status   |   keepfast run TASK --resume"
            raise UsageError(f"run {place.run.id} is not going on: there is nothing to watch", next_step=step)
        try:
            ended = _watch(place)
        except KeyboardInterrupt:
            ended = False
    say(["the run has ended: keepfast report" if ended else "left: the run goes on; keepfast attach   comes back, keepfast stop   ends it"])


def _watch(place: Place) -> bool:
    """True when the run has ended."""
    from rich.console import Console

    from keepfast.cli.place import task_of
    from keepfast.errors import UsageError
    from keepfast.report import book
    from keepfast.report.live import Live

    task = task_of(place)
    if task is None:
        raise UsageError("the task's folder has changed since the run began", next_step="keepfast log --follow")
    since = max((e.id for e in place.ledger.events(place.run.id)), default=0)
    with Live(task, place.run, Console(highlight=False), book=book.read(place.ledger, place.run, task)) as live:
        return _followed(place, live, since)


def _followed(place: Place, live: Live, since: int) -> bool:
    going = True
    while going:  # and once more after it has ended
        holder = place.ledger.holder()
        going = holder is not None and holder.run == place.run.id
        for stamped in place.ledger.events(place.run.id, since):
            live(stamped.event)
            since = stamped.id
        if going:
            time.sleep(BETWEEN_SECONDS)
    return True
