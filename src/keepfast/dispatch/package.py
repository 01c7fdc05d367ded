"""The files of a package: a kernel's own with what they need to be built or imported, stock, and the generated ones around them.

Owns how a task's files become a package's. Must not know the judge, the ledger or how a table came about.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from keepfast.dispatch import render, rewrite
from keepfast.dispatch.operator import Override
from keepfast.dispatch.records import Table
from keepfast.errors import UsageError
from keepfast.lang.c import SUFFIXES_CPP
from keepfast.lang.python import import_root
from keepfast.model import Baseline, File, Task
from keepfast.task import abi, tunables
from keepfast.task.paths import expand
from keepfast.task.places import FROZEN, REFERENCE
from keepfast.task.rules import prepares

CHAMPION, STOCK, GENERATED = "_champion", "_stock_files", "_generated"
NATIVE = {".c": "gcc", ".cc": "g++", ".cpp": "g++", ".cxx": "g++", ".cu": "nvcc"}
SHARED = ("-fPIC", "-shared", "-fvisibility=hidden", "-falign-functions=64", "-falign-loops=32")


class Source(Struct, frozen=True):
    """What a package is made of. `name`: of the package; `champion`: its editable files."""

    task: Task
    table: Table
    champion: tuple[File, ...]
    name: str
    override: Override | None = None

    @property
    def dtypes(self) -> dict[str, str]:
        return {a.name: a.dtype for a in (*self.table.arguments, *self.table.outputs) if a.dtype}

    @property
    def stock(self) -> Baseline:
        return next(b for b in self.task.baselines if b.name == self.table.stock)


def module_files(source: Source, hub: str = "") -> dict[str, bytes]:
    """The files of the module, by their paths in it. `hub`: the namespace of a kernel repository's operators."""
    _fit(source)
    kernel, champion = _champion(source)
    stock, stocked = _stocked(source)
    facts = render.Facts(source.task, source.table, source.name, kernel, stock, hub, source.override)
    made = {
        "__init__.py": render.init(facts),
        "_op.py": render.operator(facts),
        "_kernel.py": render.call(facts, kernel, "The kernel, called with the operator's arguments; gives its fresh outputs."),
        "_stock.py": render.call(facts, stock, f"What is used where the kernel is not: {source.table.stock}."),
        "_router.py": render.plain("router.py.txt"),
        "routes.json": json.dumps(_routes(source), indent=1, sort_keys=True) + "\n",
    }
    if "native" in (kernel.kind, stock.kind):
        made["_native.py"] = render.plain("native.py.txt")
    if source.override is not None:
        made["_override.py"] = render.plain("override.py.txt").replace("{op}", source.override.op)
        made["_vllm.py"] = render.plain("vllm.py.txt")
    return {name: text.encode() for name, text in made.items()} | champion | stocked


def test_files(source: Source) -> dict[str, bytes]:
    """The package's own tests, with the human's reference.py, which draws their inputs."""
    folder = Path(source.task.folder)
    found = {"reference.py": (folder / REFERENCE).read_bytes()}
    for path in expand(folder, (f"{FROZEN}/**",)):
        if "__pycache__" not in path:
            found[path] = (folder / path).read_bytes()
    return found


def _routes(source: Source) -> dict[str, Any]:
    override = msgspec.to_builtins(source.override) if source.override is not None else None
    table = msgspec.to_builtins(source.table)
    return {"package": source.name, "op": source.task.signature.name, "table": table, "override": override}


def _fit(source: Source) -> None:
    """UsageError for what no package of ours can do yet."""
    loose = next((a.name for a in source.table.arguments if a.kind == "tensor" and not a.contiguous), "")
    if loose:
        raise UsageError(f"`{loose}` is not contiguous in this task: a package takes contiguous tensors only", where=source.task.name)
    entry = source.task.entry_path
    extra = next((s for s in source.task.build.sources if entry.endswith(".py") and not s.endswith(".py")), "")
    if extra:
        raise UsageError(f"an extension of torch ({extra}) cannot be packed yet", where=source.task.name)
    text = next((f.data.decode("utf-8", "replace") for f in source.champion if f.path == entry), "")
    if prepares(entry, text):
        raise UsageError(f"{entry} defines `prepare`, which a package cannot call yet", where=source.task.name)


# --------------------------------------------------------------------------------------------- the kernel and stock


def _champion(source: Source) -> tuple[render.Body, dict[str, bytes]]:
    task = source.task
    tree = {f.path: f.data for f in (*_readable(task), *source.champion)}
    text = tree.get(task.tunables, b"").decode() if task.tunables else ""
    space = tunables.parse(text)
    if PurePosixPath(task.entry_path).suffix in NATIVE:
        body = _native(source, task, CHAMPION, "kernel")
        return body, _below(CHAMPION, tree | _generated(source, task, tunables.header(space)))
    root = import_root(task.entry_path, tree)
    tree[f"{root}/keepfast_tunables.py" if root else "keepfast_tunables.py"] = tunables.python(space).encode()
    beside = str(PurePosixPath(task.entry_path).parent)
    roots = tuple(dict.fromkeys(("" if beside == "." else beside, root, "", *("" if i == "." else i for i in task.build.include))))
    body = render.Body("torch", module=_module(CHAMPION, task.entry_path), symbol=task.entry_symbol, name="kernel")
    return body, _below(CHAMPION, _relative(tree, roots))


def _stocked(source: Source) -> tuple[render.Body, dict[str, bytes]]:
    folder, one = Path(source.task.folder), source.stock
    path = PurePosixPath(one.path)
    if path.suffix in NATIVE:
        task = msgspec.structs.replace(source.task, entry_path=path.name, entry_symbol="kernel", tunables="", editable=(path.name,))
        files = {path.name: (folder / one.path).read_bytes()} | _generated(source, task, tunables.header(tunables.parse("")))
        return _native(source, task, STOCK, one.name), _below(STOCK, files)
    beside = [p for p in sorted((folder / "baselines").glob("_*.py")) if p.name != path.name]  # no baselines, but what those import
    tree = {p.name: p.read_bytes() for p in (folder / one.path, *beside)}
    body = render.Body(
        "torch" if source.task.gpu else "numpy", module=_module(STOCK, path.name), symbol="kernel", name=one.name, checked=True
    )
    return body, _below(STOCK, _relative(tree, ("",)))


def _native(source: Source, task: Task, folder: str, name: str) -> render.Body:
    """How the sources are compiled: the human's flags, and what the judge adds."""
    suffix = PurePosixPath(task.entry_path).suffix
    sources = [f"{{tree}}/{s}" for s in (task.entry_path, *(task.build.sources if name == "kernel" else ()))]
    include = [f"-I{{tree}}/{i}" for i in task.build.include]
    here = f"-I{{tree}}/{GENERATED}"
    if suffix == ".cu":
        host = ["-shared", "-arch={arch}", "-Xcompiler=-fPIC", here, *include]
        shim = f"{{tree}}/{GENERATED}/shim.cpp"
    else:
        host = [*SHARED, here, *include]
        shim = f"{{tree}}/{GENERATED}/{'shim.cpp' if suffix in SUFFIXES_CPP else 'shim.c'}"
    libs = [*task.build.libs, *(["-lm"] if suffix != ".cu" else [])]
    argv = [NATIVE[suffix], *task.build.flags, *host, *sources, shim, "-o", "{out}", *libs]
    words = abi.layout_of(task.signature, task.axes)
    return render.Body("native", folder=folder, argv=tuple(argv), words=words, name=name, checked=name != "kernel")


def _generated(source: Source, task: Task, header: str) -> dict[str, bytes]:
    shim = abi.shim(task, source.dtypes)
    made = {"keepfast.h": abi.header(task, source.dtypes), "keepfast_tunables.h": header, "shim.c": shim, "shim.cpp": shim}
    return {f"{GENERATED}/{name}": text.encode() for name, text in made.items()}


def _readable(task: Task) -> tuple[File, ...]:
    """The human's files that a build may see, the entry's neighbours in `include` among them."""
    root = Path(task.root)
    folders = (f"{glob.escape(name)}/**" for name in task.build.include if name != ".")
    paths = expand(root, (*task.build.readable, *map(glob.escape, task.build.sources), *folders))
    return tuple(File(path, (root / path).read_bytes()) for path in paths if "__pycache__" not in path)


def _relative(tree: Mapping[str, bytes], roots: Sequence[str]) -> dict[str, bytes]:
    made = dict(tree)
    for path in [p for p in tree if p.endswith(".py")]:
        made[path] = rewrite.relative(tree[path].decode(), path, made.keys(), roots).encode()
    return made


def imports(source: Source) -> tuple[str, ...]:
    """What the kernel and stock import from elsewhere."""
    found: set[str] = set()
    for files in (_champion(source)[1], _stocked(source)[1]):
        for path in [p for p in files if p.endswith(".py")]:
            found |= rewrite.outside(files[path].decode(), path, files.keys(), ())
    return tuple(sorted(found))


def _below(folder: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{path}": data for path, data in files.items()}


def _module(folder: str, path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    if any("." in part for part in parts):
        raise UsageError(f"`{path}` cannot be a module of a package", next_step="Rename folders that have a dot in their name")
    return ".".join((folder, *parts))
