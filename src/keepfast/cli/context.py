"""`keepfast context`: the pages that an agent gets, for a task or for a card and a model by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from keepfast.cli.args import Json
from keepfast.cli.brief import Task

if TYPE_CHECKING:
    from keepfast.cli.stand import Stand
    from keepfast.context import Chosen, Device, Need, Sheet

EXAMPLE = "keepfast context tasks/rmsnorm --device H200"


class PageFact(Struct, frozen=True):
    name: str
    kind: str
    title: str
    applies: tuple[str, ...]
    sure: str
    tokens: int
    cut: bool
    chosen: bool
    text: str


class Shown(Struct, frozen=True):
    """What `context --json` prints; with --list every page there is, without its text."""

    schema: str
    device: str
    languages: tuple[str, ...]
    tokens: int
    warning: str
    left_out: tuple[str, ...]
    pages: tuple[PageFact, ...]


def command(
    task: Task = Path(),
    device: Annotated[str, typer.Option(metavar="CARD", help="A card by name, e.g. H200.", show_default="the run's, or the one here")] = "",
    model: Annotated[str, typer.Option(metavar="MODEL", help="A model or a mechanism by name, e.g. deepseek-v4.")] = "",
    tokens: Annotated[int, typer.Option(metavar="N", help="How long they may be together, in tokens (characters / 3.6).")] = 12_000,
    listed: Annotated[bool, typer.Option("--list", help="List all pages; those that would be given are marked.")] = False,
    json: Json = False,
) -> None:
    """Print the pages on card, languages and model that an agent gets, cut to a budget.

    Chosen by the task's card, languages, title, ideas and reference. Without a task, by --device and --model alone.
    """
    from keepfast.cli.out import emit, say
    from keepfast.context import choose, read

    sheets = read()
    need = needed(task, device, _known(model, sheets))
    if not (listed or need.gpu or need.languages or need.text):
        from keepfast.errors import UsageError

        raise UsageError("no task here, and no card or model named", next_step="keepfast context --list   names all pages")
    chosen = choose(need, tokens, sheets)
    if json:
        emit(_shown(need, chosen, sheets if listed else chosen.sheets, listed))
        return
    say(_table(chosen, sheets) if listed else chosen.text.removesuffix("\n").split("\n"))


def needed(task: Path, device: str, model: str) -> Need:
    """What pages are wanted for; of no task when none is there and none was named."""
    from keepfast.cli.stand import standing
    from keepfast.context import Device, Need
    from keepfast.errors import UsageError
    from keepfast.propose.brief_facts import need_of

    card = Device(device) if device else None
    try:
        with standing(task) as stand:
            need = need_of(stand.task, card or card_of(stand), stand.ideas(), stand.reference())
            return Need(need.device, need.gpu or card is not None, need.languages, f"{need.text}\n{model}")
    except UsageError:
        if task != Path() or (task / "task.toml").is_file():
            raise
        return Need(card, card is not None, (), model)


def card_of(stand: Stand) -> Device | None:
    """The card that the task's newest run was judged on, else the one in this machine; None for a task of the CPU, or without either."""
    from keepfast.context import Device
    from keepfast.device import nvidia
    from keepfast.errors import KeepfastError

    if not stand.task.gpu:
        return None
    if stand.run is not None and stand.run.machine.gpu:
        return Device(stand.run.machine.gpu)
    try:
        found = nvidia.cards()
    except KeepfastError:
        return None
    return Device(found[0].name, found[0].capability) if found else None


def _known(model: str, sheets: tuple[Sheet, ...]) -> str:
    """`model` when a page is about it; UsageError that names the nearest otherwise."""
    from keepfast.context.cards import words
    from keepfast.errors import UsageError, nearest

    if not model or any(s.hits(words(model)) for s in sheets):
        return model
    names = sorted({a for s in sheets if s.kind == "model" for a in s.applies})
    raise UsageError(f"no page on a model `{model}`.{nearest(model, names)}", next_step="keepfast context --list   names all pages")


def _shown(need: Need, chosen: Chosen, sheets: tuple[Sheet, ...], listed: bool) -> Shown:
    given = {s.name for s in chosen.sheets}
    pages = tuple(
        PageFact(s.name, s.kind, s.title, s.applies, s.sure, s.tokens, s.cut, s.name in given, "" if listed else s.text) for s in sheets
    )
    name = need.device.name if need.device else ""
    return Shown("keepfast.context/1", name, need.languages, chosen.tokens, chosen.warning, chosen.cuts, pages)


def _table(chosen: Chosen, sheets: tuple[Sheet, ...]) -> list[str]:
    from keepfast.cli.out import columns
    from keepfast.report.escape import clip, line

    given = {s.name for s in chosen.sheets}
    rows = [f"{'*' if s.name in given else ' '} {s.name:<36} {s.tokens:>6,}  {line(s.title)}" for s in sheets]
    end = f"* given, {chosen.tokens:,} tokens together" if given else "none is given without a task, --device or --model"
    return [f"  {'page':<36} tokens  about", *(clip(r, columns()) for r in rows), end]
