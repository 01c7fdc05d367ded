"""Which files of a repository a Python file imports, read from the text: what a candidate's process has to be given.

Owns where imports are looked for. Nothing is imported; whether a package is installed is asked of Python's finders alone.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from keepfast.errors import UsageError

_TAKEN = ("torch", "triton", "numpy", "keepfast", "adapter", "reference", "frozen")  # modules that no file of the repository may stand for
DATA_FILES, DATA_BYTES = 200, 16 << 20  # of a folder of data beside a file
_PLAIN = re.compile(r"[\w.-]*\w[\w.-]*(/[\w.-]*\w[\w.-]*)*/?", re.ASCII)  # a path below


class Module(Struct, frozen=True):
    """A file as it is imported. `top`: the folder that its imports begin at; `name`: its dotted name from there, "" when it has none
    and must be loaded by its path."""

    path: Path
    top: Path
    name: str

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that it lies in, the outermost first."""
        parts = self.name.split(".")[:-1]
        return tuple(".".join(parts[: i + 1]) for i in range(len(parts)))


class Imports(Struct, frozen=True):
    """`files`: of the repository, besides the file itself. `missing`: packages that it needs and this Python does not have."""

    files: tuple[Path, ...]
    missing: tuple[str, ...]


def module(path: Path, root: Path) -> Module:
    """The file as Python would import it: below the first folder upwards that is no package."""
    top = path.parent
    while top != root and (top / "__init__.py").is_file():
        top = top.parent
    parts = (*path.relative_to(top).parent.parts, *(() if path.name == "__init__.py" else (path.stem,)))
    taken = not parts or parts[0] in sys.stdlib_module_names or parts[0] in _TAKEN
    return Module(path, top, "" if taken or not all(p.isidentifier() for p in parts) else ".".join(parts))


def closure(start: Module, root: Path, *, bare: bool) -> Imports:
    """What importing the file reads. `bare`: without the `__init__.py` of the packages that it lies in."""
    return _Walk(start, root, bare=bare).all()


def data(paths: Iterable[Path], root: Path) -> tuple[Path, ...]:
    """Files and folders, none of them code, that lie beside one of the files and that its text names: it may read them when imported."""
    found: dict[Path, None] = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PLAIN.fullmatch(node.value):
                beside = path.parent / node.value.strip("/")
                if beside.is_relative_to(root) and _is_data(beside):
                    found[beside] = None
    return tuple(sorted(found))


def _is_data(path: Path) -> bool:
    if path.is_symlink():
        return False
    if path.is_file():
        return path.suffix not in (".py", ".pyc", ".so") and path.stat().st_size <= DATA_BYTES
    inside = [p for _, p in zip(range(DATA_FILES + 1), path.rglob("*"), strict=False)] if path.is_dir() else []
    files = [p for p in inside if p.is_file()]
    size = sum(p.stat().st_size for p in files)
    return bool(files) and len(inside) <= DATA_FILES and size <= DATA_BYTES and not any(p.suffix in (".py", ".so") for p in files)


class _Walk:
    def __init__(self, start: Module, root: Path, *, bare: bool) -> None:
        self.start, self.root = start, root
        self.tops = (
            tuple(dict.fromkeys((start.top, start.path.parent, root))) if not start.name else tuple(dict.fromkeys((start.top, root)))
        )
        self.left_out = {start.top.joinpath(*p.split("."), "__init__.py") for p in start.packages} if bare else set()
        self.files: dict[Path, bool] = {}  # whether importing the first one is sure to import it
        self.missing: dict[str, None] = {}

    def all(self) -> Imports:
        waiting = [(path, True) for path in (self.start.path, *self._packages(self.start.path, self.start.top))]
        while waiting:
            path, sure = waiting.pop()
            if path in self.left_out or (path in self.files and self.files[path] >= sure):
                continue
            self.files[path] = sure
            waiting += [(found, now and sure) for found, now in self._read(path, sure=sure)]
        self.files.pop(self.start.path)
        return Imports(tuple(sorted(self.files)), tuple(sorted(self.missing)))

    def _read(self, path: Path, *, sure: bool) -> Iterator[tuple[Path, bool]]:
        """Files that it imports, each with whether that happens as soon as it is imported itself."""
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        except (SyntaxError, ValueError) as problem:
            raise UsageError(f"not Python: {problem}", where=str(path)) from None
        at_once = {id(n) for n in tree.body}
        for node in ast.walk(tree):
            now, found = id(node) in at_once, list[Path]()
            if isinstance(node, ast.Import):
                found = [p for alias in node.names for p in self._absolute(alias.name, (), needed=now and sure)]
            elif isinstance(node, ast.ImportFrom):
                names = tuple(a.name for a in node.names)
                found = list(
                    self._relative(path, node, names) if node.level else self._absolute(node.module or "", names, needed=now and sure)
                )
            yield from ((one, now) for one in found)

    def _relative(self, path: Path, node: ast.ImportFrom, names: tuple[str, ...]) -> Iterator[Path]:
        folder = path.parent
        for _ in range(node.level - 1):
            folder = folder.parent
        if not folder.is_relative_to(self.root):
            raise UsageError("imports from outside the repository", where=f"{path}:{node.lineno}")
        yield from self._found(folder, (node.module or "").split(".") if node.module else [], names)

    def _absolute(self, dotted: str, names: tuple[str, ...], *, needed: bool) -> Iterator[Path]:
        """The first folder that has it. What no folder has must be installed."""
        for top in self.tops:
            found = list(self._found(top, dotted.split("."), names))
            if found:
                yield from found
                return
        first = dotted.partition(".")[0]
        if (
            needed
            and first not in sys.stdlib_module_names
            and not any((top / first).is_dir() for top in self.tops)
            and not _installed(first)
        ):
            self.missing[first] = None

    def _found(self, folder: Path, parts: list[str], names: tuple[str, ...]) -> Iterator[Path]:
        """Files that `from parts import names` reads, below a folder."""
        for i, part in enumerate(parts):
            if (folder / part).is_dir():
                folder = folder / part
                yield from self._one(folder / "__init__.py")
            elif i == len(parts) - 1 and (folder / f"{part}.py").is_file():
                yield folder / f"{part}.py"
                return
            else:
                return
        for name in names:
            if (folder / f"{name}.py").is_file():
                yield folder / f"{name}.py"
            elif (folder / name).is_dir():
                yield from self._one(folder / name / "__init__.py")

    def _packages(self, path: Path, top: Path) -> Iterator[Path]:
        folder = path.parent
        while folder != top:
            yield from self._one(folder / "__init__.py")
            folder = folder.parent

    def _one(self, path: Path) -> Iterator[Path]:
        if path.is_file():
            yield path


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
