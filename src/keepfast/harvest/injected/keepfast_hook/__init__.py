"""The hook: wraps one function of this program when its module is imported, and writes down what it is called with.

The standard library only; torch and NumPy are used when the program has imported them, and never imported for it. `settings.json` beside
the folder says what is looked for and where to write.
"""

from __future__ import annotations

import json
import os

from . import finder
from .ops import install
from .tally import Tally
from .wrap import in_module


def start(folder: str) -> None:
    """Called once in every Python that the program starts."""
    with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
        settings = json.load(file)
    tally = Tally(settings)
    os.register_at_fork(after_in_child=tally.forked)
    target = settings["target"]
    if target["kind"] == "op":
        finder.when_imported("torch", lambda module: install(module, target, tally))
        return
    finder.watch(target, lambda module: in_module(module, target, tally), settings["out"])
