"""`keepfast doctor`: what this machine can do."""

from __future__ import annotations

import typer

from keepfast.cli.args import Json

EXAMPLE = "keepfast doctor"


def command(json: Json = False) -> None:
    """Say what walls, compiler, clock and devices can do here, and what to do about each lack."""
    from keepfast import doctor as doctors

    raise typer.Exit(doctors.doctor(json))
