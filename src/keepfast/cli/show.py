"""`keepfast show N`: one experiment, whole."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from keepfast.cli.args import Json, Number, RunName

if TYPE_CHECKING:
    from keepfast.cli.place import Place
    from keepfast.model import Experiment

EXAMPLE = "keepfast show 7 --diff"


def command(
    n: Number,
    diff: Annotated[bool, typer.Option("--diff", help="Print the change itself, against the champion it was judged against.")] = False,
    rounds: Annotated[bool, typer.Option("--rounds", help="Print every round that was timed as well.")] = False,
    run: RunName = "",
    json: Json = False,
) -> None:
    """Show one experiment: every rung, every number with its spread, its number of rounds and its opponent.

    What --diff prints can be piped into `git apply`; control characters in it are shown as escapes.
    """
    from keepfast.cli.out import columns, emit, say
    from keepfast.cli.place import here
    from keepfast.report import book as books
    from keepfast.report import facts
    from keepfast.report import show as shows

    with here(run) as place:
        experiment = place.ledger.experiment(place.run.id, n)
        if diff and not json:
            _print(unified(place, experiment))
            return
        book = books.lineage(place.ledger, place.run, experiment)
        change = unified(place, experiment) if diff else None
    if json:
        emit(facts.show(book, experiment, change))
        return
    say(shows.show(book, experiment, rounds=rounds, columns=columns()))


def unified(place: Place, experiment: Experiment) -> str:
    """The change of `experiment`; UsageError when it was never stored, or was dropped since."""
    from keepfast.errors import UsageError

    if experiment.parent == 0:
        return ""
    if not experiment.commit:
        step = f"keepfast show {experiment.n}   says why"
        raise UsageError(f"experiment {experiment.n} was turned away before it was stored", next_step=step)
    return place.repo.diff(place.ledger.experiment(place.run.id, experiment.parent).commit, experiment.commit)


def _print(change: str) -> None:
    from keepfast.report.escape import lines, patch

    sys.stdout.write("".join(f"{one}\n" for one in lines(change.rstrip("\n"))) if sys.stdout.isatty() else patch(change))
    sys.stdout.flush()
