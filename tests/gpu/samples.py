"""The GPU part of the corpora, for the tests that look at it as files. What headers say: keepfast.redteam.entries."""

from __future__ import annotations

from pathlib import Path

from keepfast.redteam import attempt
from keepfast.redteam.entries import FAMILIES, Entry, entries, folders, header
from keepfast.redteam.outcome import Found, Outcome, state

HERE = Path(__file__).parent
TASKS = ("add", "norm", "rows")
Sample = Entry

__all__ = ["FAMILIES", "HERE", "TASKS", "Sample", "header", "outcome", "samples"]


def samples() -> list[Sample]:
    """All of them, task by task; those that hang come last."""
    return [entry for entry in entries(folders()) if entry.kind == "gpu"]


def outcome(sample: Sample, found: Found, seconds: float) -> Outcome:
    """As keepfast.redteam.attempt writes it."""
    return Outcome(
        id=sample.id,
        name=sample.name,
        kind=sample.kind,
        language=sample.said.get("language", ""),
        honest=sample.honest,
        words=sample.words,
        state=state(sample, found),
        reason=found.reason,
        layer=found.layer,
        detail=found.detail,
        seconds=round(seconds, 2),
        open=sample.open,
        key=attempt.key(sample),
    )
