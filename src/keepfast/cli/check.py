"""`keepfast check`: the task, and the working tree once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.args import Json, TaskArg, Trust, Walls, one_of

EXAMPLE = "keepfast check tasks/rmsnorm"


Arch = Annotated[str, typer.Option(metavar="ARCH", help="Without a GPU: the one a GPU task is compiled for, e.g. sm_90.")]


def command(task: TaskArg = Path(), arch: Arch = "sm_90", walls: Walls = "auto", trust: Trust = False, json: Json = False) -> None:
    """Lint the task, then judge the working tree once against the champion.

    The first thing to type after editing a kernel by hand. Nothing is kept: the verdict is the exit code (0 would be kept,
    3 reject, 4 suspect, 5 void, 6 revert; 2 when the task itself is refused). A GPU task on a machine without a GPU is
    compiled, and nothing is timed.
    """
    from keepfast import run
    from keepfast.options import WALLS, RunOptions

    raise typer.Exit(run.check(task, RunOptions(walls=one_of("--walls", walls, WALLS), trust_candidate=trust, json=json, arch=arch)))
