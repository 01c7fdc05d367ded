"""`keepfast certify`: where the champion wins, and where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.args import Json, TaskArg, Trust, Walls, one_of

EXAMPLE = "keepfast certify tasks/rmsnorm --hours 2"

Hours = Annotated[float | None, typer.Option(metavar="H", help="Stop after so many hours; the same command goes on later.")]
Again = Annotated[bool, typer.Option("--again", help="Measure everything anew.")]


def command(
    task: TaskArg = Path(), hours: Hours = None, again: Again = False, walls: Walls = "auto", trust: Trust = False, json: Json = False
) -> None:
    """Hold the champion against every fallback over the axes that a router sees and those it does not, and write a routing table.

    A region goes to the champion only if it wins at all hidden values, with a bound; ties go to stock. `[dispatch]` in task.toml says
    what is visible and where to measure. What was measured for the same task, kernel and machine is used again.
    """
    from keepfast.cli.out import emit, say
    from keepfast.dispatch import certify, text
    from keepfast.options import WALLS, RunOptions

    options = RunOptions(walls=one_of("--walls", walls, WALLS), trust_candidate=trust, json=json)
    found = certify.certify(task, certify.Wanted(options, hours, again, (lambda event: None) if json else _murmur))
    if json:
        emit(found.table)
    else:
        say(text.told(found.table, found.artifact))
    raise typer.Exit(0 if found.table.complete else 7)


def _murmur(event: object) -> None:
    """One plain line on stderr for what takes long."""
    import sys

    from keepfast.model import Event
    from keepfast.report.escape import line

    if isinstance(event, Event) and event.kind in ("certify", "note") and event.text:
        print(f"  {line(event.text)}", file=sys.stderr)
