"""`keepfast brief`: what an agent would be told now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from keepfast.cli.args import Json

if TYPE_CHECKING:
    from keepfast.cli.stand import Stand
    from keepfast.model import Experiment
    from keepfast.propose.brief_facts import BriefFacts

EXAMPLE = "keepfast brief tasks/rmsnorm"
TASK = "Folder with the task.toml, or its name below tasks/."
Task = Annotated[Path, typer.Argument(metavar="TASK", help=TASK, show_default="the task here, or that of the newest run")]


class Told(Struct, frozen=True):
    """What `brief --json` prints. `run` is null before the first run of this task; `left_out` are notes on pages that were cut."""

    schema: str
    task: str
    run: str | None
    tokens: int
    most: int
    warning: str
    pages: tuple[str, ...]
    left_out: tuple[str, ...]
    text: str


def command(
    task: Task = Path(),
    tokens: Annotated[int, typer.Option(metavar="N", help="How long it may be, in tokens (characters / 3.6).")] = 12_000,
    json: Json = False,
) -> None:
    """Print BRIEF.md as an agent would get it now.

    Goal and distance, rules, ideas, what was tried, the compiler's words, measured ceilings, cases, reference, what to read. From the
    newest run of the task, or of the bare task before one.
    """
    from keepfast.cli.out import emit, say
    from keepfast.cli.stand import standing
    from keepfast.context import tokens as length
    from keepfast.propose.brief import text

    with standing(task) as stand:
        facts = facts_here(stand)
        run = stand.run.id if stand.run else None
    said = text(facts, tokens)
    if json:
        pages = tuple(s.name for s in facts.pages.sheets)
        chosen = (facts.pages.warning, pages, facts.pages.cuts)
        emit(Told("keepfast.brief/1", facts.task.name, run, length(said), tokens, *chosen, said))
        return
    say(said.removesuffix("\n").split("\n"))


def facts_here(stand: Stand) -> BriefFacts:
    """What a brief is written from, here and now."""
    from keepfast.cli.context import card_of
    from keepfast.context import choose
    from keepfast.propose.base import Brief
    from keepfast.propose.brief_facts import Records, facts_of, need_of

    task, reference, records = stand.task, stand.reference(), Records(stand.ideas())
    history: tuple[Experiment, ...] = ()
    left = ""
    if stand.run is not None and stand.ledger is not None:
        history = stand.ledger.experiments(stand.run.id)
        left = stand.budget_left(history)
        records = Records(records.ideas, stand.ledger.directs(stand.run.id), stand.ledger.baselines(stand.run.id), stand.in_hand())
    brief = Brief(task, stand.champion(), history, budget_left=left)
    pages = choose(need_of(task, card_of(stand), records.ideas, reference))
    return facts_of(brief, records, stand.run.machine if stand.run else None, reference, pages)
