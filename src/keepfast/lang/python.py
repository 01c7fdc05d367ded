"""What the languages in Python share: their kernels are compiled when they are called, so a build only reads the files.

The files are a candidate's, so even their grammar is looked at by a process inside the walls. Must not know what they do.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import PurePosixPath

from keepfast.lang.base import Step
from keepfast.model import File

SUFFIXES = (".py",)
# Prints `FILE:LINE: error: TEXT` for the first file that is not Python.
_CHECK = """\
import ast, sys
tree, *paths = sys.argv[1:]
for path in paths:
    try:
        with open(tree + "/" + path, "rb") as file:
            ast.parse(file.read(), path)
    except SyntaxError as problem:
        sys.exit(f"{path}:{problem.lineno or 1}: error: {problem.msg}")
    except (ValueError, MemoryError, RecursionError) as problem:
        sys.exit(f"{path}:1: error: not Python: {problem or 'nested too deep'}")
"""


def interpreter() -> tuple[str, ...]:
    """What a walled process has to read to start this interpreter."""
    return (sys.executable, sys.prefix, sys.base_prefix)


def syntax(files: tuple[File, ...]) -> tuple[Step, ...]:
    """A step that reads every `.py` of a candidate, and fails with the line of the first mistake."""
    paths = tuple(file.path for file in files if file.path.endswith(SUFFIXES))
    argv = (sys.executable, "-I", "-S", "-B", "-c", _CHECK, "{tree}", *paths)
    return (Step(argv, "", interpreter()),) if paths else ()


def import_root(entry_path: str, paths: Collection[str]) -> str:
    """The folder that the entry's imports begin at, relative to the tree and "" for the tree itself: the first one upwards that is
    no package. Of `src/norms/ops/kernel.py` with src/norms/__init__.py and src/norms/ops/__init__.py it is `src`."""
    folder = PurePosixPath(entry_path).parent
    while folder.parts and f"{folder}/__init__.py" in paths:
        folder = folder.parent
    return folder.as_posix() if folder.parts else ""
