"""Names of GPU architectures: sm_90, and sm_90a with every instruction of that chip.

Must not know compilers.
"""

from __future__ import annotations

import re

from keepfast.errors import MachineError, UsageError

_FORM = re.compile(r"(?:sm_)?(\d{2,3})[af]?", re.ASCII)
FIRST_SPECIFIC = 90  # from here on each chip has instructions that no later one has: `a`


def capability(arch: str) -> int:
    """90 of "sm_90" or "sm_90a"; UsageError for anything else."""
    found = _FORM.fullmatch(arch)
    if found is None:
        said = f"`{arch}` is no GPU architecture" if arch else "it is not known for which GPU to compile"
        raise UsageError(said, next_step="Name one like sm_90 (H100, H200) or sm_100 (B200)")
    return int(found[1])


def specific(arch: str) -> str:
    """The digits for a compiler: "90a" for sm_90, "89" for sm_89."""
    number = capability(arch)
    return f"{number}a" if number >= FIRST_SPECIFIC else str(number)


def needs(language: str, arch: str, first: int) -> None:
    """MachineError, one sentence, when `language` makes no code for `arch`. An empty `arch` is not looked at."""
    if arch and capability(arch) < first:
        what = f"{language} makes no code for sm_{capability(arch)}: the first GPU that it knows is sm_{first}"
        raise MachineError(what, next_step="Write the kernel in `cuda`, or use a newer GPU")
