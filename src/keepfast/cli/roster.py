"""`keepfast roster`: who proposes, what each brought and cost, and why one is not asked."""

from __future__ import annotations

from keepfast.cli.args import Json, RunName

EXAMPLE = "keepfast roster"


def command(run: RunName = "", json: Json = False) -> None:
    """Show the proposers of a run: attempts, verdicts, tokens, dollars, gain for a dollar; and every switch with its reason."""
    from keepfast.cli.out import columns, emit, say
    from keepfast.cli.place import here, task_of
    from keepfast.report import book as books
    from keepfast.report import facts, summary

    with here(run) as place:
        book = books.read(place.ledger, place.run, task_of(place))
    if json:
        emit(facts.roster(book))
        return
    say(summary.roster(book, columns()))
