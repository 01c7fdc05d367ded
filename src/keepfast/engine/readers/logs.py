"""What an engine's log says of CUDA graphs: counts where it gives them, and the sentences with which it turns them off.

The share is of steps, which is what an engine counts; a profile would say it of kernel time.
"""

from __future__ import annotations

import re

from msgspec import Struct

_STEP = re.compile(r"\bDecode batch\b.*\bcuda graph: (True|False)\b")  # SGLang, one line every so many steps
_ROW = re.compile(r"\|\s*\d+\s*\|\s*\d+\s*\|\s*\d+\s*\|\s*(?:CUDAGraphMode\.)?([A-Z_]+)\s*\|\s*(\d+)\s*\|")  # vLLM, --cudagraph-metrics
_OFF = (
    re.compile(r"Enforce eager set, disabling", re.I),  # vLLM
    re.compile(r"\bcudagraph_mode=(?:CUDAGraphMode\.)?NONE\b", re.I),
    re.compile(r"\bDisable (?:decode )?cuda graph because\b", re.I),  # SGLang
    re.compile(r"skipping cudagraphs due to", re.I),  # torch.compile
)


class Counted(Struct, frozen=True):
    """`share`: of steps that replayed a graph, None where the log does not count. `said`: the line that turned them off, or ""."""

    share: float | None
    steps: int = 0
    said: str = ""


def graphs(text: str) -> Counted:
    inside = total = 0
    said = ""
    for line in text.splitlines():
        if step := _STEP.search(line):
            inside, total = inside + (step[1] == "True"), total + 1
        elif row := _ROW.search(line):
            count = int(row[2])
            inside, total = inside + (0 if row[1] == "NONE" else count), total + count
        elif not said and any(rule.search(line) for rule in _OFF):
            said = line.strip()[:200]
    if total:
        return Counted(inside / total, total, said)
    return Counted(0.0 if said else None, 0, said)
