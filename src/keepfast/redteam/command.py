"""The story of `keepfast redteam`: corpora found, entries tried, table printed, exit code. Must not know kinds of entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from keepfast.redteam import table
from keepfast.redteam.attempt import Wanted
from keepfast.redteam.attempt import run as tried
from keepfast.redteam.entries import Folders, folders
from keepfast.redteam.outcome import Outcome
from keepfast.walls.base import Walls


class Given(Struct, frozen=True):
    """The command line. `corpus`: a folder with cheats/ and honest/ in place of those that ship."""

    parts: tuple[str, ...]
    only: str = ""
    quick: bool = False
    out: Path | None = None
    corpus: Path | None = None


def run(given: Given, walls: str, json: bool) -> int:
    """`keepfast redteam`; its exit code."""
    from keepfast.cli.out import emit, say

    if not json:
        say([table.head()])
    result = tried(places(given.corpus), _wanted(given), Walls.detect(walls), _quiet if json else _printing(say))  # type: ignore[arg-type]
    found = table.summary(result)
    if json:
        emit(found)
    else:
        say(table.closing(found))
    return table.code(found)


def places(corpus: Path | None) -> Folders:
    """Where the corpora lie; tasks and attacks are always ours."""
    ours = folders()
    return ours if corpus is None else replace(ours, cheats=corpus.resolve() / "cheats", honest=corpus.resolve() / "honest")


def _wanted(given: Given) -> Wanted:
    return Wanted(given.parts, given.only, given.quick, given.out)


def _printing(say: Callable[[list[str]], None]) -> Callable[[Outcome], None]:
    return lambda one: say([table.row(one)])


def _quiet(one: Outcome) -> None:
    """With --json all is said at the end."""
