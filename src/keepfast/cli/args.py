"""Arguments and options that several commands have, so that they are called and explained the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TaskArg = Annotated[
    Path, typer.Argument(metavar="TASK", help="Folder with the task.toml, or its name below tasks/.", show_default="the current folder")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Walls = Annotated[str, typer.Option(metavar="KIND", help="Walls to use: auto, walls, partial, none.")]
Trust = Annotated[bool, typer.Option("--trust-candidate", help="Run without walls where this machine has none: you wrote every candidate.")]
RunName = Annotated[str, typer.Option("--run", metavar="RUN", help="Name of the run, e.g. softmax-1.", show_default="the newest run")]
Number = Annotated[int, typer.Argument(metavar="N", help="Number of the experiment, as `keepfast log` prints it.")]
TaskName = Annotated[str, typer.Option("--task", metavar="NAME", help="Name of the task.", show_default="the task of the newest run")]
