"""`keepfast calibrate`: what this machine can tell apart."""

from __future__ import annotations

from pathlib import Path

import typer

from keepfast.cli.args import Json, TaskArg, Trust, Walls, one_of

EXAMPLE = "keepfast calibrate tasks/rmsnorm"


def command(task: TaskArg = Path(), walls: Walls = "auto", trust: Trust = False, json: Json = False) -> None:
    """Measure the noise of this machine for one task: the same kernel in both arms, and builds that differ in layout only.

    Says the smallest gain that can be judged here, and how many experiments an hour. `run` does this by itself when it must.
    """
    from keepfast import run
    from keepfast.options import WALLS, RunOptions

    raise typer.Exit(run.calibrate(task, RunOptions(walls=one_of("--walls", walls, WALLS), trust_candidate=trust, json=json)))
