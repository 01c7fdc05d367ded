"""Writes a task folder: an example that runs as it is, or one around a C function where it stands in a repository.

Everything is worked out before the first byte is written, and a folder that does not load is taken away again.
Must not execute anything but the preprocessor, and never touches files outside the new folder.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import TaskError, UsageError
from keepfast.judge import toolchain
from keepfast.model import Signature
from keepfast.task import abi, adapter, cproto, example, newfolder, preprocess, texts
from keepfast.task.file import NAME
from keepfast.task.places import FROZEN, REFERENCE
from keepfast.task.signature import parse

_C = (".c", ".h")
_CPP = (".cc", ".cpp", ".cxx")


class Origin(Struct, frozen=True):
    """A C function where it stands, as the human types it on the command line."""

    source: str  # FILE.c:FUNCTION
    signature: str
    cases: tuple[str, ...]  # "m=1,16 n=4096": the product of the values
    oracle: str | None = None  # FILE.py:FUNCTION, or None: the present sources, frozen
    shapes: tuple[str, ...] = ()  # "x=m,n"; a tensor not named has all axes
    bind: tuple[str, ...] = ()  # "lda=n": a parameter that no argument, output or axis is named after
    dtypes: tuple[str, ...] = ()  # "x=float32": where the C type does not say it
    flags: tuple[str, ...] = ()  # besides -O2, which an -O of one's own replaces
    libs: tuple[str, ...] = ("-lm",)
    sources: tuple[str, ...] = ()  # further C files that the function needs
    include: tuple[str, ...] = ()  # include folders


def init(folder: Path) -> tuple[Path, ...]:
    """Write the example task into the new `folder`; the files written. UsageError when the folder has something in it."""
    return newfolder.write(newfolder.free(folder), {name: text.encode() for name, text in example.FILES})


def init_from(folder: Path, source: Origin) -> tuple[Path, ...]:
    """Write a task around the function of `source` into the new `folder`; the files written.

    UsageError or TaskError for whatever does not fit, with nothing left on disk.
    """
    folder = newfolder.free(folder)
    path, symbol = newfolder.split(source.source, "--from FILE.c:FUNCTION")
    if path.suffix not in _C + _CPP or '"' in str(path):
        raise UsageError(f"{path} is no C or C++ file by its name ({', '.join(_C + _CPP)})", where="--from")
    root = newfolder.root(folder, path)
    plan = _plan(source, path, symbol, root)
    return newfolder.write(folder, _texts(source, plan, folder))


class _Plan(Struct, frozen=True):
    """All that is known about the function before anything is written."""

    root: Path
    path: Path
    home: Path  # the file that defines the function: `path`, or one that it includes
    signature: Signature
    prototype: cproto.Prototype
    axes: tuple[str, ...]
    cases: tuple[tuple[int, ...], ...]
    matched: adapter.Match
    shapes: tuple[tuple[str, tuple[str, ...]], ...]
    read: tuple[Path, ...]  # what else the compiler reads
    entry_symbol: str

    @property
    def editable(self) -> str:
        return self.home.relative_to(self.root).as_posix()


def _plan(source: Origin, path: Path, symbol: str, root: Path) -> _Plan:
    cpp, flags = path.suffix in _CPP, _flags(source)
    signature = parse(source.signature)
    axes, cases = texts.cases(source.cases)
    settings = preprocess.Settings(root, tuple(newfolder.inside(Path(i), root, "--include") for i in source.include), flags, cpp)
    unit = preprocess.read(path, symbol, settings)
    _seen_by_builds(unit)
    own = unit.own
    prototype = _prototype(unit, own, symbol, path)
    wish = adapter.Wish(axes, texts.pairs(source.bind, "--bind"), texts.pairs(source.dtypes, "--dtype"), cpp)
    matched = adapter.match(signature, prototype, wish)
    home = unit.file_at(prototype.at) or path
    return _Plan(
        root,
        path,
        home,
        signature,
        prototype,
        axes,
        cases,
        matched,
        shapes=texts.shapes(source.shapes, matched, axes, cases),
        read=_read(source, unit, settings, home),
        entry_symbol="kernel" if "kernel" not in cproto.defined(own) else f"call_{symbol}",
    )


def _seen_by_builds(unit: preprocess.Unit) -> None:
    """TaskError for a header that is here, but neither in the repository nor where the compiler's own are."""
    folders = tuple(Path(folder) for folder in toolchain.folders())
    hidden = next((f for f in unit.foreign if not any(f.is_relative_to(folder) for folder in folders)), None)
    if hidden is not None:
        step = "Install it as a package of the system, or copy it into the repository and --include its folder"
        raise TaskError("is outside the repository, where builds cannot read it", where=str(hidden), next_step=step)


def _read(source: Origin, unit: preprocess.Unit, settings: preprocess.Settings, home: Path) -> tuple[Path, ...]:
    """What the compiler reads besides `home` and the further sources."""
    sources = {newfolder.inside(Path(s), unit.root, "--source") for s in source.sources}
    others = (preprocess.read(path, "", settings) for path in sources)
    return tuple(sorted({*unit.files, *(f for other in others for f in other.files)} - {home} - sources))


def _prototype(unit: preprocess.Unit, own: str, symbol: str, path: Path) -> cproto.Prototype:
    """The prototype under the name that the human knows."""
    try:
        return replace(cproto.find(own, unit.symbol, cproto.aliases_of(unit.text)), name=symbol)
    except TaskError as problem:
        raise TaskError(problem.what, where=str(path), next_step=problem.next_step) from None


def _texts(source: Origin, plan: _Plan, folder: Path) -> dict[str, bytes]:
    """Contents of every file of the folder, by name."""
    inside = folder.relative_to(plan.root)
    name = f"adapter{'.cpp' if plan.path.suffix in _CPP else '.c'}"
    include = os.path.relpath(plan.path, folder).replace(os.sep, "/")
    words = abi.declaration(abi.layout_of(plan.signature, plan.axes), plan.entry_symbol, dict(plan.matched.dtypes))
    facts = texts.Facts(
        title=f"{plan.prototype.name} of {plan.editable}",
        signature=source.signature,
        root=os.path.relpath(plan.root, folder).replace(os.sep, "/"),
        entry=f"{(inside / name).as_posix()}:{plan.entry_symbol}",
        editable=glob.escape(plan.editable),
        axes=plan.axes,
        cases=plan.cases,
        outputs=tuple((name, dtype) for name, dtype in plan.matched.dtypes if name in plan.signature.results),
        reduction=texts.reduction(texts.Arrays(plan.signature, plan.matched.dtypes, plan.shapes), plan.axes),
        frozen=source.oracle is None,
        flags=_flags(source),
        libs=source.libs,
        sources=newfolder.relative(source.sources, plan.root, "--source"),
        include=newfolder.relative(source.include, plan.root, "--include"),
        readable=tuple(glob.escape(p.relative_to(plan.root).as_posix()) for p in plan.read),
    )
    files = {
        NAME: texts.task_text(facts).encode(),
        REFERENCE: _reference(source, plan, folder).encode(),
        name: adapter.text(plan.prototype, plan.matched, words, plan.editable, include).encode(),
    }
    return files | ({f"{FROZEN}/{plan.editable}": plan.home.read_bytes()} if source.oracle is None else {})


def _reference(source: Origin, plan: _Plan, folder: Path) -> str:
    arrays = texts.Arrays(plan.signature, plan.matched.dtypes, plan.shapes)
    if source.oracle is None:
        return texts.frozen_reference(arrays)
    path, function = newfolder.split(source.oracle, "--oracle FILE.py:FUNCTION")
    oracle = texts.Oracle(path, function, os.path.relpath(path, folder).replace(os.sep, "/"), plan.axes, plan.matched.returned)
    return texts.oracle_reference(arrays, oracle)


def _flags(source: Origin) -> tuple[str, ...]:
    return source.flags if any(flag.startswith("-O") for flag in source.flags) else ("-O2", *source.flags)
