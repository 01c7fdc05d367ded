"""What tests of the GPU judge share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.judge.gpu import arms, rounds

from . import inside
from .stand import Stand


@pytest.fixture
def stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stand]]:
    """Makes judges; builds are taken as they are, and nothing is waited for."""
    monkeypatch.setattr(arms.builder, "tree", inside.tree)
    monkeypatch.setattr(rounds, "PAUSES_S", (0.0, 0.0))
    made: list[Stand] = []

    def make(*given: Any, **more: Any) -> Stand:
        made.append(Stand(tmp_path, *given, **more))
        return made[-1]

    yield make
    for stand in made:
        stand.judge.close()


@pytest.fixture
def stand(stands: Callable[..., Stand]) -> Stand:
    return stands()
