"""Finding a candidate's entry: files written to a folder, modules imported from there, shared objects loaded.

Runs code of the candidate: whatever it raises passes through. Must not know CUDA, layouts or messages.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

MODULE = "keepfast_candidate"  # private, so that it hides no module that the tree imports by its own name
C_ENTRY = "keepfast_call"

Files = Sequence[tuple[str, bytes]]


def write(tree: Path, files: Files) -> None:
    """The candidate's files, below `tree`."""
    for path, data in files:
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    importlib.invalidate_caches()


def search(tree: Path, entry_path: str, path: Sequence[str]) -> None:
    """Let the entry import its neighbours: its own folder, the tree, then the folders named."""
    folders = dict.fromkeys(str(folder) for folder in ((tree / entry_path).parent, tree, *(tree / p for p in path)))
    sys.path[:] = [*folders, *(p for p in sys.path if p not in folders)]


def python(tree: Path, entry_path: str, symbol: str) -> Callable[..., Any]:
    """The entry of a file in Python. ImportError when the file does not define it."""
    module = _module(tree, tree / entry_path)
    found = getattr(module, symbol, None)
    if found is None:
        raise ImportError(f"{entry_path} defines no `{symbol}`")
    if not callable(found):
        raise ImportError(f"`{symbol}` in {entry_path} is a {type(found).__name__}, not a function")
    entry: Callable[..., Any] = found
    return entry


def beside(tree: Path, entry_path: str, symbol: str) -> object:
    """What else the entry's file, which was loaded before, defines under a name; None where it does not."""
    known = (m for m in modules(tree) if getattr(m, "__file__", None) == str(tree / entry_path))
    return next((found for m in known if (found := getattr(m, symbol, None)) is not None), None)


def extension(library: Path) -> None:
    """A compiled extension: imported under the name it was built with, or, when it only registers operators, loaded."""
    named = re.search(rb"\0PyInit_(\w+)\0", library.read_bytes())
    if named is None:
        import torch

        torch.ops.load_library(str(library))
        return
    name = named[1].decode()
    spec = importlib.util.spec_from_file_location(name, library, loader=ExtensionFileLoader(name, str(library)))
    _executed(name, spec)


def shared(library: Path) -> Callable[[Any], int]:
    """`keepfast_call` of a shared object. ImportError when it does not load or exports no such function."""
    try:
        call = ctypes.CDLL(str(library)).keepfast_call
    except OSError as error:
        raise ImportError(f"the library does not load: {error}") from None
    except AttributeError:
        raise ImportError(f"the library exports no `{C_ENTRY}`") from None
    call.argtypes, call.restype = (ctypes.c_void_p,), ctypes.c_int
    entry: Callable[[Any], int] = call
    return entry


def modules(tree: Path) -> tuple[ModuleType, ...]:
    """Modules that were loaded from files of the tree."""
    found = tuple(sys.modules.values())
    return tuple(m for m in found if isinstance(m, ModuleType) and Path(getattr(m, "__file__", None) or "/").is_relative_to(tree))


def _module(tree: Path, path: Path) -> ModuleType:
    """The file as a module: of its package where it lies in one, so that relative imports work, else by its location."""
    package: list[str] = []
    folder = path.parent
    while folder != tree and (folder / "__init__.py").is_file():
        package.insert(0, folder.name)
        folder = folder.parent
    if not package:
        return _executed(MODULE, importlib.util.spec_from_file_location(MODULE, path))
    sys.path.insert(0, str(folder))
    importlib.import_module(".".join(package))
    name = ".".join((*package, path.stem))
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    return _executed(name, importlib.util.spec_from_file_location(name, path))


def _executed(name: str, spec: importlib.machinery.ModuleSpec | None) -> ModuleType:
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is not a file that can be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
