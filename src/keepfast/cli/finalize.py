"""`keepfast finalize`: the keeps as a branch to review."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.args import Json, RunName

EXAMPLE = "keepfast finalize --branch faster-rmsnorm"


def command(
    branch: Annotated[str, typer.Option(metavar="NAME", help="Name of the new branch.", show_default="keepfast/RUN-final")] = "",
    base: Annotated[str, typer.Option(metavar="COMMIT", help="What to build on.", show_default="HEAD as the run began")] = "",
    run: RunName = "",
    json: Json = False,
) -> None:
    """Make a clean branch to review: one commit a keep, in your name, with gain and source in each message.

    Your checkout, index and other branches stay as they are.
    """
    from keepfast import lifecycle
    from keepfast.cli.done import tell
    from keepfast.cli.place import here
    from keepfast.report.text import shell_word

    with here(run) as place:
        name = lifecycle.finalize(place.ledger, place.repo, place.run, branch, base)
        since = base or place.run.head
    step = f"git log -p {shell_word(since[:12])}..{shell_word(name)}   |   git merge {shell_word(name)}"
    tell(f"branch {name}", step, json=json, facts=(("branch", name), ("base", since)))
