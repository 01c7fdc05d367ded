"""TARGET on the command line: what is to be watched. Must not know how."""

from __future__ import annotations

import re
from pathlib import Path

from keepfast.errors import UsageError
from keepfast.harvest.records import Target

FORM = "package.module:function, package.module:Class.method, path/file.py:FUNCTION or torch.ops.NS.NAME"
_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)?"


def parse(text: str) -> Target:
    """UsageError for what is none."""
    operator = re.fullmatch(r"torch\.ops\.(\w+)\.(\w+)(\.\w+)?", text, re.ASCII)
    if operator:
        return Target("op", operator[2], module=operator[1])
    place, colon, name = text.rpartition(":")
    if not colon or not place or not re.fullmatch(_NAME, name, re.ASCII):
        raise UsageError(f"`{text}` names no function", where="TARGET", next_step=f"Write {FORM}")
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise UsageError(f"{place} does not exist", where="TARGET", next_step=f"Looked for {path}")
        return Target("file", name, path=str(path))
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", place):
        raise UsageError(f"`{place}` is no module, and no file that ends in .py", where="TARGET", next_step=f"Write {FORM}")
    return Target("function", name, module=place)
