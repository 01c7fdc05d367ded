"""`python -m keepfast.capture.compile_only JOB OUT [TREE]`: what a candidate's kernels compile to, on a machine without a GPU.

Imports the entry and calls it once a case with tensors that have no memory, while Triton compiles for the wanted GPU and launches
nothing. JOB is a Job as msgpack; one JSON line, a Report, goes to OUT. Untrusted: it runs a candidate's code, so it belongs inside the
walls, and what it says is no verdict on anything but compiling.

A candidate that needs real contents on the host cannot be followed all the way: that is a note, never an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from keepfast.capture import load, prepare
from keepfast.capture.refusals import CALLING, LOADING, Guard, Refused
from keepfast.gpu.layout import Layout

MAX_TEXT = 400
MAX_KERNELS = 64
MAX_NOTES = 8
QUOTED = re.compile(r"^([A-Z]\w*)\((['\"])(.*)\2\)$")  # NameError('foo is not defined')
OURS_TOO = (ImportError, SyntaxError, NameError)  # what an import raises with a GPU as without


class Job(Struct, frozen=True):
    """`tree`: folder with the candidate, "" where the command line says it; `path`: folders of it that imports begin at;
    `capability` as in 90."""

    tree: str
    entry_path: str
    entry_symbol: str
    path: tuple[str, ...]
    capability: int
    cases: tuple[Layout, ...]
    prepare: str = prepare.WEIGHTS  # what one beside the entry is (messages.Capture)


class Kernel(Struct, frozen=True):
    name: str
    case: str  # the first that launches it
    registers: int
    spill_bytes: int
    shared_bytes: int
    warps: int
    stages: int


class Report(Struct, frozen=True):
    """`error`: "" or import, compile, machine; `detail` one sentence, of the first two it begins with FILE:LINE. `notes`: where a case
    could not be followed."""

    error: str = ""
    detail: str = ""
    case: str = ""
    kernels: tuple[Kernel, ...] = ()
    notes: tuple[str, ...] = ()


def report(job: Job) -> Report:
    """Compile what the entry launches for every case."""
    from keepfast.capture import no_gpu

    try:
        driver = no_gpu.Driver(job.capability)
        no_gpu.install(driver)
        no_gpu.pretend(driver)
    except (AttributeError, ImportError, TypeError) as problem:  # no candidate was heard of yet
        return Report("machine", f"this torch and this Triton are of another kind than those that are known: {problem}"[:MAX_TEXT])
    tree = Path(job.tree)
    run = Run(tree, driver)
    load.search(tree, job.entry_path, job.path)
    with no_gpu.without_memory():
        entry = run.attempt("", lambda: load.python(tree, job.entry_path, job.entry_symbol))
        beside = load.beside(tree, job.entry_path, prepare.SYMBOL)
        for layout in job.cases if entry is not None else ():
            run.attempt(layout.case, partial(no_gpu.call, entry, layout, lambda layout: prepare.bound(beside, layout, job.prepare)))
            run.take(layout.case)
            if run.error.error:
                break
    return msgspec.structs.replace(run.error, kernels=tuple(run.kernels.values())[:MAX_KERNELS], notes=tuple(run.notes[:MAX_NOTES]))


class Run:
    """Collects kernels, notes, and the error that ends it."""

    def __init__(self, tree: Path, driver: Any) -> None:
        self.tree, self.driver = tree, driver
        self.kernels: dict[bytes, Kernel] = {}
        self.notes: list[str] = []
        self.error = Report()

    def attempt(self, case: str, call: Callable[[], Any]) -> Any:
        """What `call` returns. What it raises ends the job when it is about compiling, or about importing; else it is a note."""
        try:
            with Guard(self.tree, CALLING if case else LOADING, lambda: ""):
                return call()
        except Refused as refused:
            cause = refused.__context__ or refused
            if refused.error == "compile" or (not case and isinstance(cause, OURS_TOO)):
                self.error = Report("compile" if refused.error == "compile" else "import", _described(refused, cause), case)
            else:
                where = f"case {case}" if case else "its import"
                self.notes.append(f"{where}: without a GPU the host code cannot be followed: {_described(refused, cause)}"[:MAX_TEXT])
            return None

    def take(self, case: str) -> None:
        for image, made in self.driver.compiled.items():
            if image not in self.kernels:
                self.kernels[image] = Kernel(case=case, **msgspec.structs.asdict(made))


# --------------------------------------------------------------------------------------------- words


def _described(refused: Refused, cause: BaseException) -> str:
    """`kernel.py:12: what`, with the line of the kernel where Triton names it, else of the host code."""
    inside = [p for p in _chain(cause) if hasattr(p, "node") and getattr(p, "src", None)]
    host = re.match(r"[^\s:`]+:\d+(?=:)", refused.detail)
    place = (_in_kernel(inside[-1]) if inside else "") or (Path(host[0]).name if host else "")
    return f"{place}{': ' if place else ''}{_words([*_chain(cause)][-1] if inside else cause)}"[:MAX_TEXT]


def _chain(problem: BaseException) -> Iterator[BaseException]:
    """The exception and what caused it, the cause last."""
    at: BaseException | None = problem
    while at is not None:
        yield at
        at = at.__cause__


def _words(problem: BaseException) -> str:
    text = str(getattr(problem, "error_message", None) or (problem.msg if isinstance(problem, SyntaxError) else problem))
    ptxas = re.search(r"^ptxas .*?(?:error|fatal) *: *(.+)$", text, re.MULTILINE)
    line = f"ptxas: {ptxas[1]}" if ptxas else next((part.strip() for part in text.splitlines() if part.strip()), "")
    if hasattr(problem, "error_message") or of_triton(problem) or isinstance(problem, SyntaxError):
        return QUOTED.sub(r"\1: \3", line) or type(problem).__name__
    return f"{type(problem).__name__}: {line}".removesuffix(": ")


def of_triton(thing: object) -> bool:
    return str(type(thing).__module__).startswith("triton.")


def _in_kernel(problem: Any) -> str:
    """Where Triton's error lies: its lines count from the `def` of the kernel."""
    from triton.runtime.jit import JITCallable

    values = (value for module in list(sys.modules.values()) for value in list(getattr(module, "__dict__", {}).values()))
    bare = (_bare(value) for value in values if of_triton(value))  # others are not asked for attributes
    function = next((f for f in bare if isinstance(f, JITCallable) and f.src == problem.src), None)
    if function is None or not hasattr(problem.node, "lineno"):
        return ""
    before = next((i for i, line in enumerate(function.raw_src) if re.match(r"\s*def\s", line)), 0)
    file = Path(function.fn.__code__.co_filename).name
    return f"{file}:{function.starting_line_number + before + problem.node.lineno - 1}"


def _bare(value: Any) -> object:
    """The jit function below the decorators of autotune and heuristics: each holds the next one as `fn`."""
    while of_triton(value) and not hasattr(value, "src") and hasattr(value, "fn"):
        value = value.fn
    found: object = value
    return found


def main(job: str, out: str, tree: str = "") -> None:
    sys.stdout = sys.stderr
    given = msgspec.msgpack.decode(Path(job).read_bytes(), type=Job)
    found = report(msgspec.structs.replace(given, tree=str(Path(tree or given.tree).resolve())))
    Path(out).write_bytes(msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
