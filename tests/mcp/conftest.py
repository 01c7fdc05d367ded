"""A repository with the square task, which is the working folder, and a loop that looks into its inbox often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import empty as empty
from tests.cli.conftest import git
from tests.cli.conftest import keepfast as keepfast
from tests.judge import tasks
from tests.mcp.kit import NAME


@pytest.fixture
def root(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("keepfast.loop.IDLE", 0.05)
    tasks.write(empty / NAME)
    git(empty, "add", "-A")
    git(empty, "commit", "-qm", "a task")
    return empty


@pytest.fixture
def kernel(root: Path) -> Path:
    return root / NAME / "kernel" / "kernel.c"
