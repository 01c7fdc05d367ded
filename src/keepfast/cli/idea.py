"""`keepfast idea add|list|drop`: what people think is worth trying."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keepfast.cli.args import Json, TaskName

if TYPE_CHECKING:
    from keepfast.cli.place import Place

HELP = "Ideas worth trying: add, list, drop. They belong to a task and outlive a run."
EXAMPLE = 'keepfast idea add "keep the row in registers"'


def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The idea, in a sentence.")],
    task: TaskName = "",
    json: Json = False,
) -> None:
    """Add an idea. A run that is going on takes it up at its next turn."""
    from keepfast.cli.done import tell
    from keepfast.cli.place import here
    from keepfast.errors import UsageError

    if not text.strip():
        raise UsageError("an idea needs words", next_step=EXAMPLE)
    with here(readonly=False) as place:
        name = task or place.run.task
        if place.running and name == place.run.task:
            place.ledger.post("idea", text)
            tell("the run that is going on takes the idea at its next turn", "keepfast idea list", json=json, queued=True)
            return
        _known(place, name)
        idea = place.ledger.add_idea(name, text)
    tell(f"idea {idea.n} for {name}", "keepfast idea list", json=json, facts=(("idea", str(idea.n)), ("task", name)))


def show(task: TaskName = "", json: Json = False) -> None:
    """List the ideas of a task, with what became of each."""
    from keepfast.cli.out import columns, emit, say
    from keepfast.cli.place import here
    from keepfast.report.facts import Ideas
    from keepfast.report.text import idea_table

    with here() as place:
        name = task or place.run.task
        _known(place, name)
        ideas = place.ledger.ideas(name)
    if json:
        emit(Ideas("keepfast.ideas/1", name, ideas))
        return
    say(idea_table(ideas, columns()) if ideas else [f"no ideas yet: {EXAMPLE}"])


def drop(
    n: Annotated[int, typer.Argument(metavar="N", help="Number of the idea, as `keepfast idea list` prints it.")],
    because: Annotated[str, typer.Option(metavar="WHY", help="Why it is dead, for those who come later.")] = "dropped by hand",
    task: TaskName = "",
    json: Json = False,
) -> None:
    """Mark an idea as dead. It stays in the list with the reason."""
    from keepfast.cli.done import tell
    from keepfast.cli.place import here

    with here(readonly=False) as place:
        name = task or place.run.task
        place.ledger.drop_idea(name, n, because)
    tell(f"idea {n} of {name} is dead: {because}", json=json, facts=(("idea", str(n)), ("task", name)))


COMMANDS = (
    ("add", add, EXAMPLE),
    ("list", show, "keepfast idea list"),
    ("drop", drop, 'keepfast idea drop 2 --because "rows are new in every call"'),
)


def _known(place: Place, task: str) -> None:
    """UsageError for a task that no run of this repository had: a slip of the pen must not make a second list of ideas."""
    from keepfast.errors import UsageError, nearest

    names = sorted({r.task for r in place.ledger.runs()})
    if task not in names:
        raise UsageError(f"no run of a task `{task}` here.{nearest(task, names)}", next_step=f"tasks with a run: {', '.join(names)}")
