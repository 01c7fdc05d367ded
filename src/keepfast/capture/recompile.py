"""`python -m keepfast.capture.recompile JOB OUT`: Triton IR compiled again by the Triton of this machine. Ours, and holds no candidate.

JOB is a Job as msgpack, OUT becomes a Report. The IR is a candidate's and its readers are large: this belongs inside the walls, each
text is read in a process of its own, with a limit on time, and nothing here knows the image that has to come out. Must not know plans,
names or verdicts.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from keepfast.capture.handover import Source

SECONDS = 120  # of CPU for a kernel, which was compiled within a capture: 60 s. Of the clock twice as many
MEMORY = 8 << 30  # bytes of addresses
AT_ONCE = 4
MAX_TEXT = 300
MAX_IMAGE = 32 << 20
# What Triton's front end makes. IR of LLVM's own dialects is code of any other compiler in other clothes.
FRONT = ("builtin", "tt", "arith", "math", "scf", "cf", "ub", "gpu.barrier")
DIALECTS: dict[str, tuple[str, ...]] = {"ttir": FRONT, "ttgir": (*FRONT, "ttg", "ttng", "nvws")}
SYMBOL = re.compile(r"[A-Za-z_$][\w$.]*", re.ASCII)  # one of other characters could be read as PTX
# Of ptxas: none that names a file.
PTXAS = re.compile(r"(?:-O|--?opt-level[= ])[0-4]|--?maxrregcount[= ]\d+|--?register-usage-level[= ]\d+|--?d[ls]cm[= ]\w+|--?fmad[= ]\w+")
LEAVES = re.compile(r"\.(?:visible|entry|func|section|file)\b")  # inline PTX that ends the function it stands in


class Job(Struct, frozen=True):
    """`capability` as in 90."""

    capability: int
    sources: tuple[Source, ...]


class Result(Struct, frozen=True):
    """`error`: why there is no image. `inline`: instructions of PTX that the IR holds as they are."""

    image: bytes = b""
    error: str = ""
    inline: int = 0


class Report(Struct, frozen=True):
    """One result a source. `error`: this Triton is not one that can be asked."""

    error: str = ""
    results: tuple[Result, ...] = ()


class Refused(Exception):
    """Why this IR is not Triton's, as a sentence."""


def report(job: Job, folder: Path) -> Report:
    """Compile every source, some at a time, below `folder`."""
    try:
        compiler = Compiler(job.capability)
    except (ImportError, AttributeError, TypeError, RuntimeError, AssertionError) as problem:
        return Report(f"this Triton cannot be asked to compile its IR again: {problem}"[:MAX_TEXT])
    places = [folder / f"{index}" for index in range(len(job.sources))]
    running: set[int] = set()
    for source, place in zip(job.sources, places, strict=True):
        place.mkdir()
        if len(running) >= AT_ONCE:
            running.discard(os.wait()[0])
        running.add(_started(partial(compiler.result, source, place), place))
    for _ in range(len(running)):
        os.wait()
    return Report("", tuple(map(_read, places)))


def _started(work: Callable[[], Result], place: Path) -> int:
    """A process that leaves its result in `place`. Whatever hostile text does to it, it is the only one that ends."""
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(2 * SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        (place / "result").write_bytes(msgspec.msgpack.encode(work()))
    finally:
        os._exit(0)


def _read(place: Path) -> Result:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.msgpack.decode((place / "result").read_bytes(), type=Result)
    return Result(error=f"compiling it again crashed, or took more than {SECONDS} s of CPU")


class Compiler:
    """Triton's, for one kind of GPU."""

    def __init__(self, capability: int) -> None:
        import triton
        from triton._C.libtriton import ir
        from triton.backends.compiler import GPUTarget
        from triton.compiler.compiler import make_backend
        from triton.runtime.errors import TritonError

        # What MLIR, LLVM and ptxas are unhappy with comes as one of many.
        self.problems = (TritonError, RuntimeError, ValueError, AssertionError, LookupError, AttributeError, TypeError, OSError)
        self.target = GPUTarget("cuda", capability, 32)
        self.backend, self.ir, self.compile = make_backend(self.target), ir, triton.compile
        self.knobs = triton.knobs
        self.knobs.compilation.always_compile = True

    def result(self, source: Source, place: Path) -> Result:
        self.knobs.cache.dir = str(place / "cache")
        path = place / f"kernel.{source.form}"
        path.write_bytes(source.text)
        try:
            inline = self._read(path, source.form)
            made = self.compile(str(path), target=self.target, options=_options(source))
            image = made.asm["cubin"]
        except Refused as why:
            return Result(error=str(why)[:MAX_TEXT])
        except self.problems as problem:
            words = next(iter(str(problem).strip().splitlines()), "")
            return Result(error=f"it does not compile again: {type(problem).__name__}: {words}"[:MAX_TEXT])
        return Result(image if len(image) <= MAX_IMAGE else b"", "", inline)

    def _read(self, path: Path, form: str) -> int:
        """Instructions of inline PTX. Refused when the IR holds what Triton's front end does not make."""
        context = self.ir.context()
        self.ir.load_dialects(context)
        self.backend.load_dialects(context)
        look = Look(form)
        self.ir.parse_mlir_module(str(path), context).walk(look.at)
        if look.wrong:
            raise Refused(look.wrong)
        return sum(text.count(";") for text in look.inline)


class Look:
    """A walk over the operations of some IR: the first that does not belong there, and the inline PTX."""

    def __init__(self, form: str) -> None:
        self.dialects, self.wrong, self.inline = DIALECTS[form], "", set[str]()

    def at(self, operation: Any) -> None:
        self.wrong = self.wrong or self._wrong(operation)
        self.inline.add(operation.get_str_attr("asm_string") or "")

    def _wrong(self, operation: Any) -> str:
        name = operation.get_name()
        if not {name, name.partition(".")[0]} & {*self.dialects}:
            return f"its IR has `{name[:60]}`, which Triton's front end does not make"
        symbols = (operation.get_str_attr(attribute) for attribute in ("sym_name", "symbol"))
        if odd := next((symbol for symbol in symbols if symbol and not SYMBOL.fullmatch(symbol)), ""):
            return f"its IR has the name {odd[:60]!r}"
        leaves = LEAVES.search(operation.get_str_attr("asm_string") or "")
        return "its IR has inline PTX that ends the function it stands in" if leaves else ""


def _options(source: Source) -> dict[str, object]:
    """The options by name. Refused for words to ptxas that are not known to be harmless."""
    given = {name: value for name, value in msgspec.structs.asdict(source.options).items() if value not in (None, "")}
    words = str(given.get("ptx_options", "")).strip()
    while words and (known := PTXAS.match(words)):
        words = words[known.end() :].strip()
    if words:
        raise Refused(f"`ptx_options` has {words[:60]!r}")
    return given


def main(job: str, out: str) -> None:
    sys.stdout = sys.stderr
    given = msgspec.msgpack.decode(Path(job).read_bytes(), type=Job)
    Path(out).write_bytes(msgspec.msgpack.encode(report(given, Path(out).parent)))


if __name__ == "__main__":
    main(*sys.argv[1:])
