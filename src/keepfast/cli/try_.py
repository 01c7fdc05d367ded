"""`keepfast try`: what the judge says of the files as they stand, without handing them in."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from keepfast.cli.args import Json
from keepfast.cli.brief import Task

if TYPE_CHECKING:
    from keepfast.mcp.door import Answer, Ticket

EXAMPLE = "keepfast try tasks/rmsnorm"


class Tried(Struct, frozen=True):
    """What `try --json` prints. `run` is empty in an agent's workspace, which knows none. `ok` false: nobody judged; the words say why."""

    schema: str
    task: str
    run: str
    files: tuple[str, ...]
    ok: bool
    words: str


def command(
    task: Task = Path(),
    seconds: Annotated[float, typer.Option(metavar="S", min=1, help="How long to wait for the answer.")] = 3600.0,
    json: Json = False,
) -> None:
    """Ask the run that is going on about the editable files of the working tree: wrong where, or right and how fast in one round.

    Nothing is kept, and it counts as an experiment. In an agent's workspace it asks for the turn that is going on there.
    """
    from keepfast.cli.out import emit, say
    from keepfast.report.escape import lines

    place = _workspace()
    found = _inside(place) if place is not None else _outside(task, seconds)
    if json:
        emit(found)
    else:
        say(lines(found.words))
    if not found.ok:
        raise typer.Exit(1)


def _workspace() -> Path | None:
    """The agent's workspace that this is called in, told by the socket there."""
    from keepfast.propose.command.client import SOCKET

    here = Path.cwd()
    for folder in (here, *here.parents):
        try:
            if stat.S_ISSOCK(os.lstat(folder / SOCKET).st_mode):
                return folder
        except OSError:
            continue
    return None


def _inside(place: Path) -> Tried:
    from keepfast.errors import MachineError
    from keepfast.propose.command import client

    try:
        said = client.ask(str(place))
    except OSError as error:
        raise MachineError(f"the judge cannot be asked now: {error.strerror}", where=str(place)) from None
    words = said.partition(b"\n")[2].decode("utf-8", "replace").rstrip("\n")
    return Tried("keepfast.try/1", "", "", (), said.startswith(client.YES), words or "the turn ended before there was an answer")


def _outside(task: Path, seconds: float) -> Tried:
    from keepfast.cli.stand import standing
    from keepfast.mcp import door, files

    with standing(task) as stand:
        way = door.door_of(stand)
        changed = files.changes(stand.champion(), files.working(stand.task))
        name = stand.task.name
    ticket = door.ask(way, changed)
    try:
        found = _awaited(ticket, seconds)
    except KeyboardInterrupt:
        print("no answer is waited for; the run answers nevertheless, and counts it", file=sys.stderr)
        raise typer.Exit(130) from None
    return Tried("keepfast.try/1", name, way.run, tuple(path for path, _ in changed), found.ok, found.words)


def _awaited(ticket: Ticket, seconds: float) -> Answer:
    from keepfast.errors import MachineError
    from keepfast.mcp import door

    until = time.monotonic() + seconds
    while (found := door.answer(ticket)) is None:
        if time.monotonic() > until:
            what = f"run {ticket.door.run} gave no answer in {seconds:g} s; it still will, and counts it"
            raise MachineError(what, next_step="keepfast log --follow   shows what it does")
        time.sleep(door.LOOK_S)
    return found
