"""`keepfast init`: a new task folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keepfast.cli.args import Json

if TYPE_CHECKING:
    from keepfast.task.onboard import Origin
    from keepfast.task.onboard_captured import CapturedOrigin
    from keepfast.task.onboard_kernelbench import KernelBenchOrigin
    from keepfast.task.onboard_op import OpOrigin
    from keepfast.task.onboard_python import PythonOrigin

EXAMPLE = 'keepfast init rmsnorm --from src/norm.c:rms_norm --signature "rms_norm(Tensor x) -> Tensor" --case "n=4096"'
Many = list[str] | None
# What each way of making a task understands; its own option is the key.
UNDERSTOOD = {
    "--from FILE.c": ("signature", "oracle", "case", "shape", "bind", "dtype", "flag", "lib", "source", "include"),
    "--from FILE.py": ("signature", "oracle", "case", "odd", "arg", "source", "language", "bare"),
    "--op": ("overload", "case", "odd", "arg", "import", "language"),
    "--kernelbench": ("candidate", "case", "odd", "language"),
    "--captured": ("signature", "oracle", "odd", "arg", "source", "language", "bare", "import", "group", "contents"),
}


def command(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="The new folder; a bare name is made below tasks/.")],
    origin: Annotated[str, typer.Option("--from", metavar="FILE:FUNC", help="A C, Triton or torch function, where it stands.")] = "",
    op: Annotated[str, typer.Option(metavar="OPERATOR", help="An operator of torch, e.g. torch.ops.aten.gelu.")] = "",
    kernelbench: Annotated[str, typer.Option(metavar="FILE", help="A KernelBench problem: Model, get_inputs, get_init_inputs.")] = "",
    captured: Annotated[str, typer.Option(metavar="DIR", help="What keepfast capture wrote; with --from, where the function stands.")] = "",
    group: Annotated[int, typer.Option(metavar="N", help="--captured: which form of calls.", show_default="the commonest")] = 0,
    contents: Annotated[bool, typer.Option("--contents", help="--captured: captured contents, in place of numbers like them.")] = False,
    signature: Annotated[str, typer.Option(metavar="TEXT", help="Its calling contract, as a torch operator schema.")] = "",
    oracle: Annotated[
        str,
        typer.Option(
            "--oracle", "--reference", metavar="FILE.py:FUNC", help="What is right, in NumPy or torch.", show_default="FUNC, frozen"
        ),
    ] = "",
    case: Annotated[Many, typer.Option(metavar="AXES", help='Sizes, e.g. "m=1,16 n=4096"; may be given again.')] = None,
    odd: Annotated[Many, typer.Option(metavar="AXES", help="Sizes that are checked and not timed; may be given again.")] = None,
    arg: Annotated[Many, typer.Option(metavar="ARGUMENT", help='GPU: "x=bf16[m,n]", "y=f32[m]!" (written), "k=8"; again.')] = None,
    language: Annotated[str, typer.Option(metavar="NAME", help="GPU: of kernels: triton, torch or cute.", show_default="as it is")] = "",
    overload: Annotated[str, typer.Option(metavar="NAME", help="--op: which overload.")] = "",
    imports: Annotated[
        Many, typer.Option("--import", metavar="MODULE", help="--op: a module that registers it; may be given again.")
    ] = None,
    candidate: Annotated[str, typer.Option(metavar="FILE", help="--kernelbench: a ModelNew to begin with.", show_default="the Model")] = "",
    bare: Annotated[bool, typer.Option("--bare", help="--from FILE.py: without the __init__.py of its packages.")] = False,
    shape: Annotated[Many, typer.Option(metavar="SHAPE", help='C: shape of a tensor, e.g. "x=m,n"; may be given again.')] = None,
    bind: Annotated[Many, typer.Option(metavar="PAIR", help='What a C parameter is, e.g. "lda=n"; may be given again.')] = None,
    dtype: Annotated[Many, typer.Option(metavar="PAIR", help='Element type the C type does not say, e.g. "x=float32".')] = None,
    flag: Annotated[Many, typer.Option(metavar="FLAG", help="Compiler flag besides -O2; may be given again.")] = None,
    lib: Annotated[Many, typer.Option(metavar="LIB", help="Library to link; may be given again.", show_default="-lm")] = None,
    source: Annotated[Many, typer.Option(metavar="FILE", help="A further file: in C that it needs, in Python that may change.")] = None,
    include: Annotated[Many, typer.Option(metavar="FOLDER", help="A folder with headers; may be given again.")] = None,
    json: Json = False,
) -> None:
    """Write a commented task folder that runs as it is, or one around code that exists: in C, Triton, torch or KernelBench."""
    from keepfast.cli.done import tell
    from keepfast.task import onboard

    given = {
        "signature": signature, "oracle": oracle, "case": case, "odd": odd, "arg": arg, "language": language, "overload": overload,
        "import": imports, "candidate": candidate, "bare": bare, "shape": shape, "bind": bind, "dtype": dtype, "flag": flag, "lib": lib,
        "source": source, "include": include, "group": group, "contents": contents,
    }  # fmt: skip
    way = "--captured" if captured and not (op or kernelbench) else _way(origin, op, kernelbench or captured)
    _understood(way, given)
    folder = name if len(name.parts) != 1 or name == Path() else Path("tasks") / name
    notes: tuple[str, ...] = ()
    if way == "--from FILE.c":
        written = onboard.init_from(folder, _c(origin, given))
    elif way:
        written, notes = _on_gpu(folder, (origin, op, kernelbench, captured), given)
    else:
        written = onboard.init(folder)
    facts = (*(("file", str(path)) for path in written), *(("note", note) for note in notes))
    frozen = (origin or captured) and not oracle and (folder / "frozen").is_dir()
    oracle_said = "; the right answer is what the function gives now: same as before, not proven right" if frozen else ""
    step = f"look at inputs() in {folder}/reference.py, then: keepfast check {folder}" if way else f"keepfast check {folder}"
    tell(f"{folder}: {len(written)} files, task.toml first{oracle_said}", step, json=json, facts=facts)
    if notes and not json:
        _say(notes)


def _way(origin: str, op: str, kernelbench: str) -> str:
    """Which way of making a task is asked for, "" for the example."""
    from keepfast.errors import UsageError

    python = origin.rpartition(":")[0].endswith(".py")
    ways = [
        *(["--from FILE.py" if python else "--from FILE.c"] if origin else []),
        *(["--op"] if op else []),
        *(["--kernelbench"] if kernelbench else []),
    ]
    if len(ways) > 1:
        raise UsageError(f"{ways[0].split()[0]} and {ways[1].split()[0]} are two ways to make a task: say one of them")
    return ways[0] if ways else ""


def _understood(way: str, given: Mapping[str, object]) -> None:
    """UsageError for an option that this way of making a task does not know."""
    from keepfast.errors import UsageError

    said = [name for name, value in given.items() if value]
    if said and not way:
        raise UsageError("these options describe a function, and none was given", next_step=EXAMPLE)
    strange = next((name for name in said if name not in UNDERSTOOD.get(way, ())), "")
    if strange:
        ways = " and ".join(known for known, names in UNDERSTOOD.items() if strange in names)
        known = ", ".join(f"--{name}" for name in UNDERSTOOD[way])
        raise UsageError(f"{way} knows no --{strange}: it is for {ways}", next_step=f"Its options: {known}")


def _many(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _c(origin: str, given: Mapping[str, object]) -> Origin:
    from keepfast.task import onboard

    return onboard.Origin(
        source=origin,
        signature=str(given["signature"]),
        cases=_many(given["case"]),
        oracle=str(given["oracle"]) or None,
        shapes=_many(given["shape"]),
        bind=_many(given["bind"]),
        dtypes=_many(given["dtype"]),
        flags=_many(given["flag"]),
        libs=_many(given["lib"]) or ("-lm",),
        sources=_many(given["source"]),
        include=_many(given["include"]),
    )


def _on_gpu(folder: Path, ways: tuple[str, str, str, str], given: Mapping[str, object]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The files written, and notes."""
    from keepfast.task import onboard_torch

    found = onboard_torch.init(folder, _gpu_origin(ways, given))
    return found.paths, found.notes


def _gpu_origin(
    ways: tuple[str, str, str, str], given: Mapping[str, object]
) -> OpOrigin | KernelBenchOrigin | PythonOrigin | CapturedOrigin:
    from keepfast.task.onboard_captured import CapturedOrigin
    from keepfast.task.onboard_kernelbench import KernelBenchOrigin
    from keepfast.task.onboard_op import OpOrigin
    from keepfast.task.onboard_python import PythonOrigin

    origin, op, kernelbench, captured = ways
    cases, odd, arguments, language = _many(given["case"]), _many(given["odd"]), _many(given["arg"]), str(given["language"])
    if op:
        return OpOrigin(op, cases, str(given["overload"]), odd, arguments, _many(given["import"]), language or "torch")
    if kernelbench:
        return KernelBenchOrigin(kernelbench, str(given["candidate"]), cases, odd, language)
    also, signature, oracle = _many(given["source"]), str(given["signature"]), str(given["oracle"])
    python = PythonOrigin(origin, cases, signature, oracle, odd, arguments, also, language, bool(given["bare"]))
    if captured:
        group, contents = int(str(given["group"])) or 1, bool(given["contents"])
        return CapturedOrigin(captured, python, group, contents, _many(given["import"]))
    return python


def _say(notes: tuple[str, ...]) -> None:
    from keepfast.cli.out import say
    from keepfast.report.escape import line

    say([f"  note: {line(note)}" for note in notes])
