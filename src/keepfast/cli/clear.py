"""`keepfast clear N --because`: a human clears a suspect."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.args import Json, Number, RunName

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
            lifecycle.cleared(place.ledger, place.run, n, because)  # says now what the run would only note
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
