"""`keepfast clear N --because`: a human clears a suspect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keepfast.cli.args import Json, Number, RunName

if TYPE_CHECKING:
    from keepfast.cli.place import Place

EXAMPLE = 'keepfast clear 9 --because "half of the rows are padding, see the case"'


def command(
    n: Number,
    because: Annotated[str, typer.Option(metavar="WHY", help="Why it is right after all. It is stored and shown with the keep.")],
    run: RunName = "",
    json: Json = False,
) -> None:
    """Clear a suspect: it becomes the champion, with your reason beside it.

    Only a suspect that was judged against the present champion can be cleared. Look at it first: keepfast show N --diff.
    """
    from keepfast import lifecycle
    from keepfast.cli.done import tell
    from keepfast.cli.place import here

    with here(run, readonly=False) as place:
        name = place.run.id
        if place.running:
            _check(place, n, because)
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
    """Says now what the run could only note at its next turn. Whether the champion is still the same, only the run knows."""
    from keepfast.errors import UsageError
    from keepfast.model import Kind

    kind = place.ledger.experiment(place.run.id, n).verdict.kind
    if kind is not Kind.SUSPECT:
        raise UsageError(f"experiment {n} is no suspect: {kind}", next_step=f"keepfast show {n}")
    if not because.strip():
        raise UsageError("a suspect is cleared for a reason", next_step=f'keepfast clear {n} --because "..."')
