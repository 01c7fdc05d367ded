"""Not the thing asked for: a candidate's files and the kernels that a launcher saw of it, before the judge's two rules. Needs no card.

Must not know the corpus, nor how a profile is made.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from msgspec import Struct

from keepfast.gpu.messages import KernelFacts
from keepfast.judge.endings import Failure
from keepfast.judge.gpu import provenance
from keepfast.model import File, Rules
from keepfast.redteam.entries import Entry
from keepfast.redteam.outcome import Found


class Seen(Struct, frozen=True):
    """The part of a built tree that origins are read from."""

    files: tuple[File, ...]
    library: Path | None = None


def verdict(entry: Entry) -> Found:
    """What language rule and library rule say to `kernels` (name, launches in a call, share of GPU time)."""
    said = tomllib.loads(entry.source)
    tree = Seen((File("kernel/kernel.py", said.get("source", "").encode()),))
    kernels = [KernelFacts(k["name"], k.get("launches", 1), 32, 0, 0, 128, k["share"]) for k in said.get("kernels", ())]
    found = provenance.judge_language(said["languages"], tree, kernels)
    if not isinstance(found, Failure):
        found = provenance.judge_rules(Rules(library_kernels=said.get("library_kernels", "allowed")), kernels, tree)
    if isinstance(found, Failure):
        return Found(True, found.reason.value, "rules", found.detail)
    return Found(False, "allowed", detail="; ".join(f"{f.name}: {f.value}" for f in found))
