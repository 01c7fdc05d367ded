"""`keepfast redteam`: the judge, tried with cheats and with honest look-alikes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.args import Json, Walls, one_of

EXAMPLE = "keepfast redteam --cpu --quick"

Cpu = Annotated[bool, typer.Option("--cpu", help="Only what needs no GPU.")]
Gpu = Annotated[bool, typer.Option("--gpu", help="Only what needs a GPU.")]
Only = Annotated[str, typer.Option(metavar="ID", help="One entry, by its id or name, e.g. R01p.")]
Quick = Annotated[bool, typer.Option("--quick", help="Only what is short; C without the clock.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Append each outcome here, and go on from what is there.")]
Corpus = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Another corpus: a folder with cheats/ and honest/.")]


def command(
    cpu: Cpu = False,
    gpu: Gpu = False,
    only: Only = "",
    quick: Quick = False,
    out: Out = None,
    corpus: Corpus = None,
    walls: Walls = "auto",
    json: Json = False,
) -> None:
    """Try the judge on this machine: cheats that it must catch, honest kernels that look like them and must pass.

    Prints what each tries, which layer ended it and how long that took. Exit 0 only when nothing was missed and nothing was a
    false alarm; 1 otherwise; 5 when the machine was too busy to tell. Write your own cheat and point --corpus at it.
    """
    from keepfast.options import WALLS
    from keepfast.redteam import command as redteam

    given = redteam.Given(("cpu",) * (cpu or not gpu) + ("gpu",) * (gpu or not cpu), only, quick, out, corpus)
    raise typer.Exit(redteam.run(given, one_of("--walls", walls, WALLS), json))
