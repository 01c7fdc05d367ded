"""Python runs this when it starts. It starts the hook, then the sitecustomize that this one stands in front of, if there is one."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys


def _start(folder: str) -> None:
    try:
        importlib.import_module("keepfast_hook").start(folder)
    except Exception:  # noqa: BLE001  the hook must not break the program, whatever is wrong with it
        sys.modules.pop("keepfast_hook", None)


def _the_next_one(folder: str) -> None:
    """What Python would have run without us. Its errors are its own."""
    paths = [p for p in sys.path if os.path.abspath(p or os.curdir) != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is None or spec.loader is None or spec.origin == __file__:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


HERE = os.path.dirname(os.path.abspath(__file__))
_start(HERE)
_the_next_one(HERE)
