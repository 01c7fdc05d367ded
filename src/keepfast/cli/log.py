"""`keepfast log`: the experiments, one a line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from keepfast.cli.args import Json, RunName

if TYPE_CHECKING:
    from keepfast.cli.place import Place
    from keepfast.model import Experiment

EXAMPLE = "keepfast log --follow"
PAUSE_SECONDS = 0.5


def command(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing as experiments are judged.")] = False,
    suspect: Annotated[bool, typer.Option("--suspect", help="Only suspects that wait for a human: since when, and why.")] = False,
    newest: Annotated[int, typer.Option(metavar="N", min=0, help="The last N experiments; 0 for all.")] = 50,
    run: RunName = "",
    json: Json = False,
) -> None:
    """List the experiments of a run: verdict, gain with interval or reason, and what was tried. Works while a run is going on.

    With --follow and --json, one object a line.
    """
    from keepfast.cli.out import columns, emit, say, say_log
    from keepfast.cli.place import here
    from keepfast.report import facts, text

    if suspect:
        _suspects(run, json, follow)
        return
    if follow and not run:
        _await()
    with here(run) as place:
        found = place.ledger.experiments(place.run.id, newest=newest or None)
        left_out = found[0].n - 1 if found else 0
        if json and not follow:
            emit(facts.log(place.run.id, found, left_out))
            return
        if json:
            say(_line(place, e) for e in found)
        else:
            say_log(text.log(found, columns(), left_out=left_out), found)
        if follow:
            _follow(place, found[-1].n if found else 0, json)


def _suspects(run: str, json: bool, follow: bool) -> None:
    """The queue of those that nobody has cleared."""
    from keepfast.cli.out import columns, emit, say
    from keepfast.cli.place import here
    from keepfast.errors import UsageError
    from keepfast.report import facts, suspects

    if follow:
        raise UsageError("--suspect is a list of what waits now, and does not follow", next_step="keepfast log --suspect")
    with here(run) as place:
        found = place.ledger.experiments(place.run.id)
    if json:
        emit(facts.log(place.run.id, suspects.waiting(found), 0))
        return
    say(suspects.table(found, columns=columns()))


def _await() -> None:
    """While a run is being prepared (lint, calibration), it is not in the ledger yet: waits until it is, or is gone."""
    from keepfast.cli.place import opened

    with opened(readonly=True) as (_, ledger):
        while (holder := ledger.holder()) is not None and holder.run not in [r.id for r in ledger.runs()]:
            time.sleep(PAUSE_SECONDS)


def _follow(place: Place, last: int, json: bool) -> None:
    """Prints what comes after experiment `last`. Looks once more after the run has ended: its last line is not lost."""
    from keepfast.cli.out import columns, say, say_log
    from keepfast.report import text

    going = True
    while going:
        going = place.ledger.holder() is not None
        new = [e for e in place.ledger.experiments(place.run.id, newest=_missing(place, last)) if e.n > last]
        if json:
            say(_line(place, e) for e in new)
        else:
            say_log([text.verdict_line(e, columns()) for e in new], new)
        last = new[-1].n if new else last
        if going:
            time.sleep(PAUSE_SECONDS)


def _missing(place: Place, last: int) -> int:
    """How many experiments the ledger has beyond `last`; cheap, asked twice a second."""
    return max(0, sum(count for _, count in place.ledger.counts(place.run.id)) - last)


def _line(place: Place, experiment: Experiment) -> str:
    from keepfast.report import facts

    return facts.encode_line(facts.log(place.run.id, (experiment,), 0))
