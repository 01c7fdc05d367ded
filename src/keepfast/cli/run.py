"""`keepfast run`: the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.args import Json, TaskArg, Trust, Walls, one_of

TASK = "as task.toml says"
EXAMPLE = "keepfast run tasks/rmsnorm --hours 8 --detach"


def command(
    task: TaskArg = Path(),
    proposer: Annotated[
        str, typer.Option(metavar="LIST", help="Who proposes: deck, search, claude, codex, chat:MODEL@URL; claude=2 has twice the weight.")
    ] = "deck,search",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the newest run of this task.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background; watch with `keepfast log --follow`.")] = False,
    experiments: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most N experiments.", show_default=TASK)] = None,
    hours: Annotated[float | None, typer.Option(metavar="H", min=0, help="At most H hours.", show_default=TASK)] = None,
    dry: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after N experiments in a row without a keep.", show_default=TASK)
    ] = None,
    dollars: Annotated[float | None, typer.Option(metavar="D", min=0, help="At most D dollars for agents.", show_default=TASK)] = None,
    goal: Annotated[
        float | None, typer.Option(metavar="X", min=0, help="Stop when X times faster, over what the task says.", show_default=TASK)
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="S", min=0, help="Seed of the run.", show_default="drawn")] = None,
    walls: Walls = "auto",
    trust_candidate: Trust = False,
    sampler: Annotated[str, typer.Option(metavar="NAME", help="How search samples: tpe or random.")] = "tpe",
    notify: Annotated[str, typer.Option(metavar="CMD", help="Start CMD with a line of news: keeps, suspects, no idea left, the end.")] = "",
    json: Json = False,
) -> None:
    """Propose, judge, keep or revert, until the goal is met or the budget is spent.

    Ctrl-C once stops after the experiment in flight, twice at once; both can be resumed. Budgets and goal given here replace
    those of task.toml for this run. Ends with 0, or with 7 when there was a goal and it was not met.
    """
    from keepfast import run
    from keepfast.options import SAMPLERS, WALLS, RunOptions

    options = RunOptions(
        proposer=tuple(name.strip() for name in proposer.split(",") if name.strip()),
        resume=resume,
        detach=detach,
        experiments=experiments,
        hours=hours,
        dry=dry,
        dollars=dollars,
        goal=goal,
        seed=seed,
        walls=one_of("--walls", walls, WALLS),
        trust_candidate=trust_candidate,
        sampler=one_of("--sampler", sampler, SAMPLERS),
        json=json,
        notify=notify,
    )
    raise typer.Exit(run.start(task, options))
