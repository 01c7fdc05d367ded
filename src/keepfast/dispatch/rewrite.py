"""Imports of a kernel's files made relative, so that two packages in one process do not take each other's modules.

Works on texts. Must not know tasks.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

from keepfast.errors import UsageError


def relative(text: str, path: str, files: Collection[str], roots: Sequence[str]) -> str:
    """`text` of the file at `path` with every import of another of `files` made relative. `roots`: where its imports are looked for."""
    lines = text.split("\n")
    for node in reversed([n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]):
        made = _imported(node, path, files, roots)
        if made is None:
            continue
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        if lines[first][: node.col_offset].strip() or lines[last - 1][node.end_col_offset or 0 :].split("#")[0].strip():
            raise _refused(path, node.lineno, "the import shares its line with other code", "Give it a line of its own")
        lines[first:last] = [" " * node.col_offset + one for one in made]
    return "\n".join(lines)


def outside(text: str, path: str, files: Collection[str], roots: Sequence[str]) -> set[str]:
    """Top-level names that the file imports from elsewhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        found |= {n.split(".")[0] for n in names if _module(n, files, roots) is None}
    return found - {"__future__"}


def _imported(node: ast.Import | ast.ImportFrom, path: str, files: Collection[str], roots: Sequence[str]) -> list[str] | None:
    """The statements in its place, or None when it imports nothing of ours."""
    if isinstance(node, ast.ImportFrom):
        module = _module(node.module or "", files, roots) if not node.level else None
        if module is None or f"{module}.py" == path:  # a file called numpy.py means the real one
            return None
        return [f"from {_dotted(path, module)} import {', '.join(_as(a) for a in node.names)}"]
    found = [(a, m if f"{(m := _module(a.name, files, roots))}.py" != path else None) for a in node.names]
    if all(module is None for _, module in found):
        return None
    made = []
    for alias, module in found:
        if module is None:
            made.append(f"import {_as(alias)}")
        elif "." in alias.name and not alias.asname:
            step = f"Write: from {alias.name.rpartition('.')[0]} import {alias.name.rpartition('.')[2]}"
            raise _refused(path, node.lineno, f"`import {alias.name}` cannot be made relative", step)
        else:
            name = PurePosixPath(module).name
            made.append(f"from {_dotted(path, str(PurePosixPath(module).parent))} import {name} as {alias.asname or alias.name}")
    return made


def _as(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _module(name: str, files: Collection[str], roots: Sequence[str]) -> str | None:
    """Path without suffix of the file or folder that `name` means, or None when it lies elsewhere."""
    inner = name.replace(".", "/")
    for root in roots:
        place = f"{root}/{inner}" if root else inner
        if name and (f"{place}.py" in files or f"{place}/__init__.py" in files):
            return place
    return None


def _dotted(path: str, module: str) -> str:
    """`module` as seen from the file at `path`: `.tunables`, `..lib.util`."""
    here, there = PurePosixPath(path).parent.parts, PurePosixPath(module).parts
    common = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
    return "." * (len(here) - common + 1) + ".".join(there[common:])


def _refused(path: str, line: int, what: str, step: str) -> UsageError:
    return UsageError(what, where=f"{path}:{line}", next_step=step)
