"""`keepfast export`: the champion as a package to install."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.args import Json, TaskArg, one_of

EXAMPLE = "keepfast export tasks/rmsnorm --out ../rmsnorm-fast"

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write, new or empty.")]
Name = Annotated[str, typer.Option(metavar="PKG", help="Name of the package.", show_default="the task's name and `_fast`")]
LayoutName = Annotated[str, typer.Option("--layout", metavar="KIND", help="python: to pip install; hf: a repository of the kernel hub.")]
Uncertified = Annotated[bool, typer.Option("--uncertified", help="Without a routing table: everything goes to stock.")]
Op = Annotated[
    str, typer.Option("--op", metavar="OP", help="The operator to take the place of, as in aten._softmax.", show_default="init's")
]


def command(
    task: TaskArg = Path(), out: Out = Path("export"), name: Name = "", layout: LayoutName = "python", op: Op = "",
    uncertified: Uncertified = False, json: Json = False,
) -> None:  # fmt: skip
    """Write a package with the champion, its routing table and stock, which needs no keepfast.

    It goes where the table says, and to stock on any other shape, type, card or version. Its own tests come with it.
    """
    from keepfast.cli.done import tell
    from keepfast.dispatch import export

    wanted = export.Wanted(out, name, one_of("--layout", layout, export.LAYOUTS), op, uncertified)
    made = export.export(task, wanted)
    facts = (("package", made.name), ("folder", str(made.folder)), ("regions", str(made.regions)), ("overrides", made.op))
    tell(made.said, made.next_step, json=json, facts=facts)
