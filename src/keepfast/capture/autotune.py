"""`@triton.autotune` held to one configuration: a worker never tunes, the judge names the configuration.

Decorators of heuristics stay as they are. Must not know how anything is captured.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keepfast.capture import load
from keepfast.capture.refusals import Refused


class Autotuned:
    """The autotuned kernels of a tree and all their configurations, as they were found."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.found: dict[str, tuple[Any, list[Any]]] = {}
        self._known: set[int] = set()

    def restrict(self, pins: Mapping[str, int]) -> bool:
        """Leave each kernel the configuration that `pins` names, or its first. Whether a kernel was found that was not known before."""
        before = len(self.found)
        self._look()
        for name, (tuner, configs) in self.found.items():
            index = pins.get(name, 0)
            if not 0 <= index < len(configs):
                raise Refused("raised", f"`{name}` has {len(configs)} configurations, and number {index} was asked for")
            tuner.configs = [configs[index]]
            tuner.cache.clear()
        return len(self.found) > before

    def described(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return tuple((name, tuple(str(c) for c in configs)) for name, (_, configs) in self.found.items())

    def _look(self) -> None:
        autotuner = sys.modules.get("triton.runtime.autotuner")
        if autotuner is None:
            return
        for module in load.modules(self.tree):
            for value in _values(module):
                for tuner in _chain(value, autotuner.Autotuner):
                    self._know(tuner, Path(str(module.__file__)))

    def _know(self, tuner: Any, path: Path) -> None:
        if id(tuner) in self._known:
            return
        plain = str(getattr(tuner.base_fn, "__name__", "kernel"))
        placed = f"{path.relative_to(self.tree)}:{plain}"
        names = itertools.chain((plain, placed), (f"{placed}#{n}" for n in itertools.count(2)))
        name = next(n for n in names if n not in self.found)
        self.found[name] = (tuner, list(tuner.configs))
        self._known.add(id(tuner))


def _values(module: object) -> Iterator[object]:
    """Globals of a module, what their lists and tables hold, and attributes of classes."""
    for value in tuple(vars(module).values()):
        yield value
        if isinstance(value, list | tuple):
            yield from value
        elif isinstance(value, dict):
            yield from tuple(value.values())
        elif isinstance(value, type):
            yield from tuple(vars(value).values())


def _chain(value: object, kind: type) -> Iterator[Any]:
    """Autotuners among the decorators around a kernel: each holds the next one as `fn`."""
    for _ in range(8):
        if isinstance(value, kind):
            yield value
        if not type(value).__module__.startswith("triton."):
            return
        value = getattr(value, "fn", None)
