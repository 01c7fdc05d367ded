"""`keepfast gc`: free what nothing refers to."""

from __future__ import annotations

from typing import Annotated

import typer

from keepfast.cli.args import Json

EXAMPLE = "keepfast gc --candidates 30"


def command(
    days: Annotated[
        float | None,
        typer.Option("--candidates", metavar="DAYS", min=0, help="Also forget the code of what was not kept and is older. Verdicts stay."),
    ] = None,
    json: Json = False,
) -> None:
    """Drop stored logs and raw data that no record names, older than a day. Nothing that the ledger says is lost."""
    from keepfast.cli.done import tell
    from keepfast.cli.place import opened
    from keepfast.lifecycle import collect

    with opened(readonly=True) as (repo, ledger):
        dropped = collect(ledger, repo, days)
    candidates = f", and the code of {dropped.refs} candidates" if days is not None else ""
    did = f"dropped {dropped.artifacts} artifacts, {dropped.bytes / 1e6:.1f} MB{candidates}"
    step = "git gc   frees their space in the repository" if dropped.refs else ""
    facts = (("artifacts", str(dropped.artifacts)), ("bytes", str(dropped.bytes)), ("candidates", str(dropped.refs)))
    tell(did, step, json=json, facts=facts)
