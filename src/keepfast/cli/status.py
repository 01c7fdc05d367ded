"""`keepfast status`: where the run stands."""

from __future__ import annotations

from keepfast.cli.args import Json, RunName

EXAMPLE = "keepfast status"


def command(run: RunName = "", json: Json = False) -> None:
    """Say where a run stands: who runs it, the champion, what is spent, the last verdict, what to type next."""
    from keepfast.cli.out import columns, emit, say
    from keepfast.cli.place import here, task_of
    from keepfast.report import book as books
    from keepfast.report import facts, text
    from keepfast.report.escape import line

    with here(run) as place:
        book = books.read(place.ledger, place.run, task_of(place))
        others = [r.id for r in place.ledger.runs() if r.id != place.run.id]
        holder, busy = place.holder_text(), place.busy_text()
    if json:
        emit(facts.report(book, schema="keepfast.status/1", holder=holder))
        return
    say([*text.status(book, holder, columns()), *text.others(others, columns()), *([f"now       {line(busy)}"] if busy else [])])
