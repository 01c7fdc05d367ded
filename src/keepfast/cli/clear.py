"""`keepfast clear N --because`: a human clears a suspect."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from keepfast.cli.args import Json, Number, RunName

if TYPE_CHECKING:
    from keepfast.cli.place import Place

EXAMPLE = 'keepfast clear 9 --because "half of the rows are padding, see the case"'


def command(
    n: Number,
    because: Annotated[str, typer.Option(metavar="WHY", help="Why it is right after all. It is stored and shown with the keep.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="You have looked at it: do not ask. Needed where there is no terminal.")] = False,
    run: RunName = "",
    json: Json = False,
) -> None:
    """Clear a suspect: it becomes the champion, with your reason and your name beside it.

    Only a suspect that was judged against the present champion can be cleared, and only by a human: in a terminal you are shown the
    evidence and asked. Your name is git's user, else your login. Look at it first: keepfast show N --diff.
    """
    from keepfast import lifecycle
    from keepfast.cli.done import tell
    from keepfast.cli.place import here

    with here(run, readonly=False) as place:
        name = place.run.id
        _check(place, n, because)
        if not yes:
            _ask(place, n)
        because = lifecycle.signed(because, _who(place))
        if place.running:
            place.ledger.post("clear", f"{n} {because}")
            tell(f"experiment {n} of {name} is cleared at the run's next turn", "keepfast log", json=json, queued=True)
            return
        new = lifecycle.clear(place.ledger, place.repo, place.run, n, because)
    if new is None:
        tell(f"experiment {n} of {name} was cleared before", "keepfast log", json=json)
        return
    tell(
        f"experiment {n} of {name} is cleared as experiment {new.n}, the champion now",
        "keepfast log",
        json=json,
        facts=(("n", str(new.n)),),
    )


def _check(place: Place, n: int, because: str) -> None:
    """Before anybody is asked, what a run could only note at its next turn. Whether the champion is still the same, only the run knows."""
    from keepfast.errors import UsageError
    from keepfast.model import Kind

    kind = place.ledger.experiment(place.run.id, n).verdict.kind
    if kind is not Kind.SUSPECT:
        raise UsageError(f"experiment {n} is no suspect: {kind}", next_step=f"keepfast show {n}")
    if not because.strip():
        raise UsageError("a suspect is cleared for a reason", next_step=f'keepfast clear {n} --because "..."')


def _ask(place: Place, n: int) -> None:
    """The evidence, and a question that only a terminal can answer. UsageError for no, and where there is no terminal."""
    from keepfast.cli.out import columns, say
    from keepfast.errors import UsageError
    from keepfast.report import book as books
    from keepfast.report import show as shows

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        step = f'keepfast clear {n} --because "..." --yes   when you have looked at: keepfast show {n} --diff'
        raise UsageError("a suspect is cleared by a human, and there is no terminal to ask one", next_step=step)
    experiment = place.ledger.experiment(place.run.id, n)
    say(shows.show(books.lineage(place.ledger, place.run, experiment), experiment, columns=columns()))
    if not typer.confirm(f"clear experiment {n}?"):
        raise UsageError(f"experiment {n} was not cleared", next_step=f"keepfast show {n} --diff")


def _who(place: Place) -> str:
    """Who clears it, as git knows them here, else by login."""
    import os
    import pwd

    try:
        login = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        login = f"user {os.getuid()}"
    return place.repo.who() or login
