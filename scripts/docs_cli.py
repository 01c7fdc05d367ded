"""Writes docs/cli.md, the reference of every command, from the commands themselves.

python scripts/docs_cli.py            writes it
python scripts/docs_cli.py --check    exit 1 when it is not up to date
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import fields
from typer.main import get_command

from keepfast.cli.main import build
from keepfast.redteam import table as redteam
from keepfast.report import facts

TARGET = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """# Commands

Written by `scripts/docs_cli.py` from the commands themselves; `keepfast COMMAND --help` says the same.

Every command that prints results takes `--json`: one object with a `schema` field, ASCII only. Commands that read work while a
run is going on; commands that change something reach a run that is going on through its inbox.

| exit code | meaning |
| --- | --- |
| 0 | kept, or done |
| 1 | an error of keepfast, the ledger or the disk |
| 2 | wrong usage, or a task that is refused |
| 3 | reject |
| 4 | suspect |
| 5 | void: the machine was not fit to judge |
| 6 | revert |
| 7 | the budget ended before the goal |
| 130 | interrupted |
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, groups left out, in the order of `keepfast --help`."""
    for name, command in get_command(build()).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        if inner is None:
            yield f"keepfast {name}", command
            continue
        for part, below in inner.items():
            yield f"keepfast {name} {part}", below


def section(name: str, command: Any) -> str:
    """Usage, what it does, its arguments and options, and the example."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    words = [p.metavar if p.required else f"[{p.metavar}]" for p in arguments]
    usage = " ".join([name, *words, *(["[OPTIONS]"] if options else [])])
    rows = [_argument(p) for p in arguments] + [_option(p) for p in options]
    table = ["| | |", "| --- | --- |", *rows, ""] if rows else []
    return "\n".join([f"## {name}", "", f"    {usage}", "", inspect.cleandoc(command.help), "", *table, *_example(command)])


def _argument(param: Any) -> str:
    return f"| `{param.metavar}` | {_cell(param)} |"


def _option(param: Any) -> str:
    value = f" {param.metavar}" if param.metavar and not param.is_flag else ""
    return f"| `{', '.join(param.opts)}{value}` | {_cell(param)} |"


def _cell(param: Any) -> str:
    shown = param.show_default if isinstance(param.show_default, str) else None
    plain = (
        param.default
        if isinstance(param.default, (str, int, float)) and not isinstance(param.default, bool) and param.default != ""
        else None
    )
    default = shown or plain
    required = " Required." if param.required and param.param_type_name == "option" else ""
    text = f"{param.help}{required}" + (f" Default: {default}." if default is not None else "")
    return text.replace("|", "\\|")


def _example(command: Any) -> list[str]:
    example = command.epilog.split("Example:")[1].strip()
    return ["```", example, "```", ""]


OBJECTS = (
    ("keepfast.status/1", "status", facts.Report),
    ("keepfast.log/1", "log; with --follow one a line", facts.Log),
    ("keepfast.show/1", "show", facts.Show),
    ("keepfast.report/1", "report", facts.Report),
    ("keepfast.ideas/1", "idea list", facts.Ideas),
    ("keepfast.done/1", "commands that change something", facts.Done),
    ("keepfast.redteam/1", "redteam", redteam.Summary),
)


def objects() -> str:
    """The JSON objects: which command prints which, and what is in it."""
    rows = [f"| `{name}` | {who} | {', '.join(f'`{f.encode_name}`' for f in fields(kind))} |" for name, who, kind in OBJECTS]
    number = ", ".join(f"`{f.encode_name}`" for f in fields(facts.Number))
    words = (
        f"A ratio is an object with {number}: per cent more calls a second than `opponent`, its 95 % interval, the same as a "
        "speedup, the SD between rounds, and how many rounds. Times carry their unit in the name. Fields are only ever added; "
        "what is not known is null."
    )
    return "\n".join(["## JSON objects", "", words, "", "| schema | printed by | fields |", "| --- | --- | --- |", *rows, ""])


def text() -> str:
    return "\n".join([HEAD, *(section(name, command) for name, command in commands()), objects()]).rstrip() + "\n"


def main() -> int:
    if "--check" not in sys.argv:
        TARGET.write_text(text(), encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text():
        return 0
    print("docs/cli.md is not up to date: python scripts/docs_cli.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
