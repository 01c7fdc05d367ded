"""`keepfast mcp`: an agent that somebody sits before drives a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.brief import Task

EXAMPLE = "keepfast mcp tasks/rmsnorm"


def command(
    task: Task = Path(),
    proposer: Annotated[
        str, typer.Option(metavar="LIST", help="Who proposes in a run that is started from here, as in `search,mcp`; mcp is always added.")
    ] = "mcp",
) -> None:
    """Serve a task to a coding agent over the Model Context Protocol, on standard input and output.

    The agent reads the brief, tries and submits changes, and reads verdicts; the run that is going on judges them in its walls and on its
    budget. When none is going on, the first tool that needs one starts it in the background.
    """
    from keepfast.cli.stand import standing
    from keepfast.crew import nobody
    from keepfast.mcp.server import serve
    from keepfast.propose.outside import NAME
    from keepfast.propose.sequence import named

    names = [name.strip() for name in proposer.split(",") if name.strip()]
    listed = ",".join(names if NAME in names else [*names, NAME])
    named(listed, crew=nobody())  # UsageError for a name that is unknown
    with standing(task) as stand:
        folder = Path(stand.task.folder)
    serve(folder, listed)
