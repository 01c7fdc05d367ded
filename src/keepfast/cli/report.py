"""`keepfast report`: the run on one screen, and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.args import Json, RunName

EXAMPLE = "keepfast report"


def command(
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the page.", show_default=".keepfast/report/RUN.html")
    ] = None,
    run: RunName = "",
    json: Json = False,
) -> None:
    """Sum a run up, and write a page: progress chart, experiments, diffs, direct measurements, machine. Works while a run is going on."""
    from keepfast.cli.out import columns, emit, say
    from keepfast.cli.place import here, task_of
    from keepfast.report import book as books
    from keepfast.report import facts, html, summary

    with here(run) as place:
        book = books.read(place.ledger, place.run, task_of(place))
        path = output or html.path(place.repo.state, place.run)
        html.write(book, books.differ(book, place.repo.diff), path)
        holder = place.holder_text()
    if json:
        emit(facts.report(book, holder=holder, html=str(path)))
        return
    say(summary.morning(book, path, columns()))
