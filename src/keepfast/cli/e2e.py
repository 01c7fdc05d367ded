"""`keepfast e2e`: the kept kernel in a real engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.args import Json, TaskArg

EXAMPLE = "keepfast e2e tasks/attention --rounds 8"


def command(
    task: TaskArg = Path(),
    rounds: Annotated[
        int | None, typer.Option(metavar="N", min=3, max=100, help="Rounds of each arm in each cell.", show_default="as task.toml says")
    ] = None,
    campaign: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Several tasks in one engine: each alone, and all together.", show_default=False)
    ] = None,
    aa: Annotated[bool, typer.Option("--aa", help="Stock in both arms: how much this engine varies here.")] = False,
    working_tree: Annotated[bool, typer.Option("--working-tree", help="The files as they lie here, not the champion's.")] = False,
    json: Json = False,
) -> None:
    """Prove the champion in the engine that `[engine]` of task.toml names: faster, engaged, graphs on, same outputs, no cell slower.

    The exit code is the outcome: 0 passed, 6 a micro-win only (stock stays), 3 refused; 5 when the engine cannot run here.
    """
    from keepfast.engine import run
    from keepfast.errors import UsageError

    if campaign is not None and (aa or task != Path()):
        raise UsageError("--campaign names its tasks itself, and has no --aa", next_step=f"keepfast e2e --campaign {campaign}")
    options = run.E2eOptions(rounds, working_tree, json)
    if campaign is not None:
        raise typer.Exit(run.several(campaign, options))
    raise typer.Exit(run.noise(task, options) if aa else run.start(task, options))
