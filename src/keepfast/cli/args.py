"""Arguments and options that several commands have, so that they are called and explained the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TaskArg = Annotated[
    Path, typer.Argument(metavar="TASK", help="Folder with the task.toml, or its name below tasks/.", show_default="the current folder")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Walls = Annotated[str, typer.Option(metavar="WALLS", help="Walls to judge in: auto, walls, partial or none.")]
Trust = Annotated[bool, typer.Option("--trust-candidate", help="Judge without walls: for code that you wrote.")]
RunName = Annotated[str, typer.Option("--run", metavar="RUN", help="Name of the run, e.g. softmax-1.", show_default="the newest run")]
Number = Annotated[int, typer.Argument(metavar="N", help="Number of the experiment, as `keepfast log` prints it.")]
TaskName = Annotated[str, typer.Option("--task", metavar="NAME", help="Name of the task.", show_default="the task of the newest run")]


def one_of(option: str, word: str, known: tuple[str, ...]) -> str:
    from keepfast.errors import UsageError, nearest

    if word not in known:
        raise UsageError(f"{option} cannot be `{word}`.{nearest(word, known)}", next_step=f"one of: {', '.join(known)}")
    return word
