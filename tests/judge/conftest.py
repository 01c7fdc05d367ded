"""What tests of the judge share: this machine's walls, the compiled helper, and folders that walled processes can reach."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.judge.contents import Library
from keepfast.walls.base import Walls


@pytest.fixture(scope="session")
def walls() -> Walls:
    return Walls.detect()


@pytest.fixture(scope="session")
def library() -> Library:
    return Library()


@pytest.fixture
def reachable(walls: Walls) -> Iterator[Path]:
    made = walls.folder()
    yield made
    shutil.rmtree(made)
