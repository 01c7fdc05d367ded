"""`keepfast`: puts the commands together, and turns an error for people into its message and exit code.

Importing the commands is light; what they need is imported when one runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Annotated

import typer

from keepfast.cli import (
    attach,
    brief,
    budget,
    calibrate,
    capture,
    certify,
    check,
    clear,
    context,
    demo,
    doctor,
    e2e,
    export,
    finalize,
    gc,
    idea,
    init,
    log,
    mcp,
    pause,
    redteam,
    report,
    roster,
    run,
    schema,
    show,
    status,
    stop,
    try_,
)
from keepfast.errors import KeepfastError

HELP = """Make a kernel faster while you sleep, judged so that you can believe it.

A proposer offers a change, a judge that the change cannot reach measures it, git keeps it or reverts it, and round again."""

COMMANDS: tuple[tuple[str, ModuleType, str], ...] = (
    ("demo", demo, "See the loop at work, in two minutes."),
    ("init", init, "Write a task folder."),
    ("capture", capture, "Record what a function is called with."),
    ("check", check, "Lint the task, judge the working tree once."),
    ("run", run, "Propose, judge, keep or revert, to the goal."),
    ("status", status, "Where the run stands."),
    ("log", log, "The experiments, one a line."),
    ("show", show, "One experiment: rungs, numbers, diff."),
    ("report", report, "The run on one screen, and as a page."),
    ("brief", brief, "What an agent would be told now."),
    ("context", context, "The pages on card and model it gets."),
    ("roster", roster, "The proposers: verdicts, cost, switches."),
    ("attach", attach, "Watch a run that goes on elsewhere."),
    ("pause", pause, "Let the machine go for a while."),
    ("try", try_, "Ask the judge about the working tree."),
    ("mcp", mcp, "Let a coding agent drive, over MCP."),
    ("stop", stop, "End the run after the experiment in flight."),
    ("clear", clear, "Clear a suspect, with a reason."),
    ("e2e", e2e, "Prove the champion in a real engine."),
    ("finalize", finalize, "The keeps as a clean branch to review."),
    ("certify", certify, "Where the champion wins: a routing table."),
    ("export", export, "A package that uses it there, stock elsewhere."),
    ("calibrate", calibrate, "Measure what this machine can tell apart."),
    ("redteam", redteam, "Try the judge: cheats and honest look-alikes."),
    ("doctor", doctor, "What this machine can do, and what it lacks."),
    ("gc", gc, "Free what nothing refers to."),
    ("schema", schema, "The JSON schema of task.toml."),
)
GROUPS: tuple[tuple[str, ModuleType, str], ...] = (
    ("idea", idea, "Ideas worth trying: add, list, drop."),
    ("budget", budget, "Raise the budget of a run."),
)


def build() -> typer.Typer:
    """The application. Help is plain text: it reads the same in a pipe, and needs no further imports."""
    app = typer.Typer(
        name="keepfast",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(help=HELP, epilog=epilog("keepfast demo"))(_root)
    for name, module, short in COMMANDS:
        app.command(name, short_help=short, epilog=epilog(module.EXAMPLE))(module.command)
    for name, module, short in GROUPS:
        app.add_typer(_group(module), name=name, short_help=short)
    return app


def epilog(example: str) -> str:
    return f"\b\nExample:\n  {example}"


def _group(module: ModuleType) -> typer.Typer:
    group = typer.Typer(help=module.HELP, epilog=epilog(module.EXAMPLE), no_args_is_help=True, rich_markup_mode=None)
    for name, command, example in module.COMMANDS:
        group.command(name, epilog=epilog(example))(command)
    return group


def _print_version(wanted: bool) -> None:
    if wanted:
        from keepfast import __version__

        typer.echo(f"keepfast {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)] = False,
) -> None:
    """Takes the options of `keepfast` itself."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; leaves by SystemExit with the exit code of the command or of the error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character shows its code
    try:
        build()(args=list(arguments) if arguments is not None else None, prog_name="keepfast")
    except KeepfastError as error:
        from keepfast.cli.out import complain

        complain(error)
        raise SystemExit(error.exit_code) from None
