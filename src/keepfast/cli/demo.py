"""`keepfast demo`: the real loop on a task that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.args import Json

EXAMPLE = "keepfast demo"


def command(
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to make its repository.", show_default="a new folder")
    ] = None,
    json: Json = False,
) -> None:
    """Run the loop on a plain softmax in C: real gains, slower ones, broken ones and cheats, judged before your eyes.

    Takes about two minutes on two cores; needs gcc and git, no network. Nothing in it is staged.
    """
    from keepfast import run

    raise typer.Exit(run.demo(folder, json))
