"""`keepfast pause`: let the machine go for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.args import Json

EXAMPLE = "keepfast pause"


def command(
    off: Annotated[bool, typer.Option("--off", help="Go on.")] = False,
    json: Json = False,
) -> None:
    """Pause the run that is going on, after the experiment in flight: nothing is judged, no agent is asked, no hours are spent.

    Agents that are at work end their turn; what they bring is judged when the run goes on.
    """
    from keepfast.cli.done import tell
    from keepfast.cli.place import here
    from keepfast.errors import UsageError

    with here(readonly=False) as place:
        if not place.running:
            raise UsageError(f"run {place.run.id} is not going on", next_step="keepfast run TASK --resume")
        place.ledger.post("pause", "off" if off else "")
    what = "goes on" if off else "pauses after the experiment in flight"
    tell(f"run {place.run.id} {what}", "keepfast attach" if off else "keepfast pause --off", json=json, queued=True)
