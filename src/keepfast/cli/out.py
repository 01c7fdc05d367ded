"""Printing: lines to stdout, errors to stderr, colour only for a terminal. Everything that arrives here was made by `report`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from keepfast.errors import KeepfastError

if TYPE_CHECKING:
    from msgspec import Struct

    from keepfast.model import Experiment


def say(lines: Iterable[str]) -> None:
    """Prints made lines as they are."""
    for one in lines:
        sys.stdout.write(one + "\n")
    sys.stdout.flush()


def complain(error: KeepfastError) -> None:
    """The message of an error, made safe line by line: it may quote a file, a patch or a compiler."""
    from keepfast.report.escape import lines

    sys.stderr.write("\n".join(lines(error.text())) + "\n")


def emit(record: Struct) -> None:
    """Prints `record` as one JSON object."""
    from keepfast.report import facts

    say([facts.encode(record)])


def columns() -> int:
    """Columns to fill: those of the terminal up to 160, and 100 in a pipe."""
    import shutil

    from keepfast.report.text import COLUMNS

    return min(160, max(60, shutil.get_terminal_size((COLUMNS, 24)).columns)) if sys.stdout.isatty() else COLUMNS


def say_log(lines: Sequence[str], experiments: Sequence[Experiment]) -> None:
    """Prints a log table. In a terminal the verdict of each experiment has its colour; the last lines belong to `experiments`."""
    if not sys.stdout.isatty() or not experiments:
        say(lines)
        return
    from rich.console import Console

    from keepfast.report.live import paint

    console = Console(highlight=False)
    say(lines[: -len(experiments)])
    for one, experiment in zip(lines[-len(experiments) :], experiments, strict=True):
        console.print(paint(one, experiment.verdict.kind), soft_wrap=True)
