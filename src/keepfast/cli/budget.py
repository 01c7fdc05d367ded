"""`keepfast budget raise`: more experiments, hours or patience for a run."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.args import Json, RunName

HELP = "The budget of a run: raise it while it is going on, or before it is resumed."
EXAMPLE = "keepfast budget raise --experiments 300"


def higher(
    experiments: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most N experiments in all.")] = None,
    hours: Annotated[float | None, typer.Option(metavar="H", min=0, help="At most H hours in all.")] = None,
    dry: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most N experiments in a row without a keep.")] = None,
    dollars: Annotated[float | None, typer.Option(metavar="D", min=0, help="At most D dollars in all.")] = None,
    run: RunName = "",
    json: Json = False,
) -> None:
    """Set new, higher ceilings for a run. A run that is going on takes them at its next turn, a stopped one when it is resumed."""
    from keepfast.cli.done import tell
    from keepfast.cli.place import command, here, task_of
    from keepfast.errors import UsageError
    from keepfast.progress import raised

    given = {"experiments": experiments, "hours": hours, "dry": dry, "dollars": dollars}
    words = " ".join(f"{name}={value}" for name, value in given.items() if value is not None)
    if not words:
        raise UsageError("nothing to raise was given", next_step=EXAMPLE)
    with here(run, readonly=False) as place:
        task = task_of(place)
        if task is not None:
            _not_lower(task.budget, raised(task.budget, words))
        queued = command(place, "budget", words)
        name = place.run.id
    step = "keepfast status" if queued else "keepfast run TASK --resume"
    tell(f"budget of {name}: {words.replace('=', ' ')}", step, json=json, queued=queued)


COMMANDS = (("raise", higher, EXAMPLE),)


def _not_lower(now: object, then: object) -> None:
    """UsageError when a ceiling would come down: a running run must not lose what it was promised."""
    from keepfast.errors import UsageError

    for name in ("experiments", "hours", "dry", "dollars"):
        before, after = getattr(now, name), getattr(then, name)
        if before is not None and after is not None and after < before:
            raise UsageError(f"the budget is {before} {name} already", next_step="keepfast stop   ends a run early")
