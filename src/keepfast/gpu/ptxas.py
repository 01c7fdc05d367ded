"""What `ptxas -v` says about kernels, as records. Must not know who called it."""

from __future__ import annotations

import re
from itertools import zip_longest

from msgspec import Struct

_KERNEL = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
_NUMBERS = {
    "spill_bytes": re.compile(r"(\d+) bytes spill stores"),
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "registers": re.compile(r"Used (\d+) registers"),
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
}


class Resources(Struct, frozen=True):
    """One kernel. `shared_bytes` is what its code declares: dynamic shared memory is asked for at the launch and not in it."""

    name: str
    registers: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0


def resources(log: str) -> tuple[Resources, ...]:
    """One record for each kernel that a log of `ptxas -v` names, in its order; the last word counts where one stands twice."""
    starts = [*_KERNEL.finditer(log)]
    found: dict[str, Resources] = {}
    for start, following in zip_longest(starts, starts[1:]):
        part = log[start.end() : following.start() if following else len(log)]
        numbers = {key: int(match[1]) for key, pattern in _NUMBERS.items() if (match := pattern.search(part))}
        found[start["name"]] = Resources(start["name"], **numbers)
    return tuple(found.values())
