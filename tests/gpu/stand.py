"""A task of tests/gpu/tasks in a repository of its own, with its judge: evaluates sources as candidates."""

from __future__ import annotations

from pathlib import Path

from keepfast.redteam import gpu

TASKS = Path(__file__).parent / "tasks"


class Stand(gpu.Stand):
    """See `keepfast.redteam.gpu.Stand`; opened by the name of its task."""

    @classmethod
    def open(cls, name: str, place: Path) -> Stand:  # type: ignore[override]
        return super().open(TASKS / name, place)  # type: ignore[return-value]
