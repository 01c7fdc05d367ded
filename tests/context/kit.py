"""The pages and references of keepfast, by path: without importing keepfast, so that a Python with Triton alone can test its page."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "src" / "keepfast" / "context"


@cache
def load(name: str) -> ModuleType:
    """A reference beside a model's page."""
    spec = importlib.util.spec_from_file_location(f"reference_{name}", FOLDER / "models" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def code(name: str, fence: str) -> str:
    """The one code block of that language on a page."""
    (found,) = re.findall(rf"^```{fence}\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    return str(found)
