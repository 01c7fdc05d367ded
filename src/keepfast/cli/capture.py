"""`keepfast capture`: a program runs as ever, and what one function is called with is counted and sampled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keepfast.cli.args import Json

if TYPE_CHECKING:
    from keepfast.harvest.records import Captured

EXAMPLE = "keepfast capture src/ops/norm.py:rms_norm -- python -m pytest tests/test_norm.py"


def command(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="MODULE:FUNCTION, MODULE:CLASS.METHOD, FILE.py:FUNC or torch.ops.NS.NAME.")
    ],
    program: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The program and its arguments, after two dashes.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="New folder for what is found.", show_default="captured/NAME")] = "",
    samples: Annotated[int, typer.Option(metavar="N", min=0, help="Calls whose contents are kept, at most.")] = 64,
    megabytes: Annotated[int, typer.Option(metavar="N", min=0, help="Megabytes of contents, at most.")] = 256,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the choice among calls.")] = 0,
    eager: Annotated[bool, typer.Option("--eager", help="Run it with torch.compile off, so that every call is seen.")] = False,
    json: Json = False,
) -> None:
    """Run a program, and record what one of its functions is called with: shapes, strides, numbers, contents.

    Ends with the program's own exit code. Then: keepfast init NAME --captured DIR
    """
    import tempfile

    from keepfast import settings
    from keepfast.harvest import folder, host
    from keepfast.harvest import target as targets

    found = targets.parse(target)
    place = _free(Path(out) if out else Path("captured") / found.name)
    wish = host.Wish(found, tuple(program), samples, megabytes, seed)
    with tempfile.TemporaryDirectory(prefix="keepfast-capture-") as work:
        site = host.prepare(Path(work), wish)
        code = host.run(program, settings.program_environment(str(site), eager=eager))
        captured, contents = host.gather(Path(work), wish, code)
        folder.write(place, captured, contents)
    _tell(place, captured, json=json)
    raise typer.Exit(code)


def _free(place: Path) -> Path:
    from keepfast.errors import UsageError

    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"{place} exists already", where="--out", next_step="Choose another folder, or remove it first")
    return place


def _tell(place: Path, captured: Captured, *, json: bool) -> None:
    """To stderr, as stdout is the program's; with --json one object, after all that the program wrote."""
    import sys

    from keepfast.cli.done import tell
    from keepfast.report.escape import line

    kinds, share = len(captured.kinds), captured.kinds[0].estimate / max(captured.calls, 1) if captured.kinds else 0.0
    did = f"{place}: {captured.target.text} was called {captured.calls} times in {captured.processes} processes, in {kinds} ways"
    if json:
        tell(did, json=True, facts=(("folder", str(place)), *(("note", note) for note in captured.notes)))
        return
    most = f"; the commonest makes {share:.0%}" if kinds > 1 else ""
    step = [f"  keepfast init NAME --captured {place}"] if kinds else []
    lines = [f"{did}{most}", *(f"  note: {note}" for note in captured.notes)]
    sys.stderr.write("".join(f"{line(one)}\n" for one in (*lines, *step)))
