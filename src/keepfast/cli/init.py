"""`keepfast init`: a new task folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepfast.cli.args import Json

EXAMPLE = 'keepfast init rmsnorm --from src/norm.c:rms_norm --signature "rms_norm(Tensor x) -> Tensor" --case "n=4096"'
Many = list[str] | None


def command(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="The new folder; a bare name is made below tasks/.")],
    source: Annotated[str, typer.Option("--from", metavar="FILE.c:SYMBOL", help="A C function to make faster where it stands.")] = "",
    signature: Annotated[str, typer.Option(metavar="TEXT", help="Its calling contract, as a torch operator schema.")] = "",
    oracle: Annotated[
        str, typer.Option(metavar="FILE.py:FUNC", help="NumPy function that says what is right.", show_default="the function, frozen")
    ] = "",
    case: Annotated[Many, typer.Option(metavar="AXES", help='Sizes, e.g. "m=1,16 n=4096"; may be given again.')] = None,
    shape: Annotated[Many, typer.Option(metavar="SHAPE", help='Shape of a tensor, e.g. "x=m,n"; may be given again.')] = None,
    bind: Annotated[Many, typer.Option(metavar="PAIR", help='What a C parameter is, e.g. "lda=n"; may be given again.')] = None,
    dtype: Annotated[Many, typer.Option(metavar="PAIR", help='Element type the C type does not say, e.g. "x=float32".')] = None,
    flag: Annotated[Many, typer.Option(metavar="FLAG", help="Compiler flag besides -O2; may be given again.")] = None,
    lib: Annotated[Many, typer.Option(metavar="LIB", help="Library to link; may be given again.", show_default="-lm")] = None,
    also: Annotated[Many, typer.Option("--source", metavar="FILE", help="A further C file that it needs; may be given again.")] = None,
    include: Annotated[Many, typer.Option(metavar="FOLDER", help="A folder with headers; may be given again.")] = None,
    json: Json = False,
) -> None:
    """Write a commented task folder that runs as it is; with --from, one for a C function that exists, which stays where it is."""
    from keepfast.cli.done import tell
    from keepfast.task import onboard

    folder = name if len(name.parts) != 1 or name == Path() else Path("tasks") / name
    if source:
        origin = onboard.Origin(
            source=source,
            signature=signature,
            cases=tuple(case or ()),
            oracle=oracle or None,
            shapes=tuple(shape or ()),
            bind=tuple(bind or ()),
            dtypes=tuple(dtype or ()),
            flags=tuple(flag or ()),
            libs=tuple(lib or ("-lm",)),
            sources=tuple(also or ()),
            include=tuple(include or ()),
        )
        written = onboard.init_from(folder, origin)
    else:
        _only_with_from(signature, oracle, case, shape, bind, dtype, flag, lib, also, include)
        written = onboard.init(folder)
    facts = tuple(("file", str(path)) for path in written)
    oracle_said = "; the right answer is what the function gives now: same as before, not proven right" if source and not oracle else ""
    step = f"look at inputs() in {folder}/reference.py, then: keepfast check {folder}" if source else f"keepfast check {folder}"
    tell(f"{folder}: {len(written)} files, task.toml first{oracle_said}", step, json=json, facts=facts)


def _only_with_from(*given: object) -> None:
    from keepfast.errors import UsageError

    if any(given):
        raise UsageError("these options describe a C function, and none was given", next_step=EXAMPLE)
