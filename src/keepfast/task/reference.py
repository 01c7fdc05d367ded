"""The human's reference.py as a module, and what it sees of a case. Must not know what its functions give, nor who calls them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from keepfast.errors import TaskError
from keepfast.model import Case


class CaseView:
    """What reference.py sees of a case: one attribute an axis, and `name`."""

    def __init__(self, case: Case) -> None:
        self.name = case.name
        self.axes = dict(case.axes)
        self.__dict__.update(self.axes)

    def __getitem__(self, axis: str) -> int:
        return self.axes[axis]


def load_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise TaskError("there is no reference.py", where=str(path), next_step="write inputs(case, rng) and reference(...): docs/tasks.md")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("keepfast_reference", path)
    if spec is None or spec.loader is None:
        raise TaskError("cannot be loaded", where=str(path), next_step=f"python {path}   says more")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and typing look their module up
    spec.loader.exec_module(module)
    return module
