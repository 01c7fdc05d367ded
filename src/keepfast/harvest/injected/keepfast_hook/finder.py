"""When a module is imported: asks the other finders, lets their loader run, and calls back with the module.

A file that is run as the main program passes no finder; there a trace function watches the module's own lines until the function is
defined, and goes away. Must not know what is done with the module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

Found = Callable[[ModuleType], bool]  # true when there is no more to do
MAIN = "main-program"  # a file in the folder of results: a process ran the file as its main program


class Finder:
    """First on sys.meta_path, also after somebody else has put himself there."""

    def __init__(self, name: str, path: str, found: Found) -> None:
        self.name, self.path, self.found = name, path, found
        stem = os.path.splitext(os.path.basename(path))[0]
        self.last = os.path.basename(os.path.dirname(path)) if stem == "__init__" else stem
        self.asking = False
        self.done = False

    def wants(self, name: str) -> bool:
        return name == self.name if self.name else name.rpartition(".")[2] == self.last

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if self.asking:
            return None
        if not self.wants(name):
            self._look_around()
            return None
        self.asking = True
        try:
            spec = next((s for s in (f.find_spec(name, path, target) for f in _others(self)) if s is not None), None)
        finally:
            self.asking = False
        if spec is not None and hasattr(spec.loader, "exec_module") and (self.name or same(spec.origin, self.path)):
            spec.loader = Loader(spec.loader, self)
        return spec

    def _look_around(self) -> None:
        """Be first again, and see whether the module came in by another way."""
        at = sys.meta_path
        if at and at[0] is not self and self in at:
            at.remove(self)
            at.insert(0, self)
        module = sys.modules.get(self.name) if self.name and not self.done else None
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            self.done = self.found(module)


def _others(mine: Finder) -> Any:
    return (f for f in list(sys.meta_path) if f is not mine and hasattr(f, "find_spec"))


class Loader:
    """The loader that was found, and what comes after it."""

    def __init__(self, inner: Any, finder: Finder) -> None:
        self.inner, self.finder = inner, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create_module(self, spec: Any) -> Any:
        return self.inner.create_module(spec) if hasattr(self.inner, "create_module") else None

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.inner
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        self.inner.exec_module(module)
        self.finder.done = self.finder.found(module)


def same(one: str | None, other: str) -> bool:
    return bool(one) and os.path.realpath(str(one)) == other


def when_imported(name: str, found: Found) -> None:
    sys.meta_path.insert(0, Finder(name, "", found))


def watch(target: dict[str, str], found: Found, out: str) -> None:
    """`target` has a module's name, or the path of a file. The main program is watched when it may be that file."""
    sys.meta_path.insert(0, Finder(target["module"], target["path"], found))
    if _may_be_main(target, out) and sys.gettrace() is None:
        sys.settrace(Main(target, found, out).calls)


def _may_be_main(target: dict[str, str], out: str) -> bool:
    words = sys.orig_argv[1:]
    if any("multiprocessing" in word for word in words):  # a worker imports the main program of its parent
        return os.path.exists(os.path.join(out, MAIN))
    if target["path"] and any(same(os.path.abspath(word), target["path"]) for word in words):
        return True
    modules = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "-m"]
    names = (target["module"], f"{target['module']}.__main__") if target["module"] else ()
    last = os.path.splitext(os.path.basename(target["path"]))[0]
    return any(m in names or (last and m.rpartition(".")[2] == last) for m in modules)


class Main:
    """Waits for the main program to define the function."""

    def __init__(self, target: dict[str, str], found: Found, out: str) -> None:
        self.target, self.found, self.out = target, found, out
        self.first = target["name"].partition(".")[0]

    def calls(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code.co_name != "<module>" or frame.f_globals.get("__name__") not in ("__main__", "__mp_main__"):
            return None
        if not self._is_target(frame):
            return None
        with open(os.path.join(self.out, MAIN), "w"):
            pass
        return self.lines

    def _is_target(self, frame: FrameType) -> bool:
        spec = frame.f_globals.get("__spec__")
        if self.target["module"]:
            return getattr(spec, "name", "") in (self.target["module"], f"{self.target['module']}.__main__")
        return same(os.path.abspath(frame.f_code.co_filename), self.target["path"])

    def lines(self, frame: FrameType, event: str, arg: object) -> Any:
        if self.first not in frame.f_globals and event != "return":
            return self.lines
        sys.settrace(None)
        frame.f_trace = None
        module = sys.modules.get(str(frame.f_globals.get("__name__")))
        if module is None or vars(module) is not frame.f_globals:
            module = _Globals(frame.f_globals)
        self.found(module)
        return None


class _Globals(ModuleType):
    """A module that is no entry of sys.modules yet, by its globals."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__(str(names.get("__name__")))
        object.__setattr__(self, "names", names)

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "names")[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        object.__getattribute__(self, "names")[name] = value
