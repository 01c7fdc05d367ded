"""Walls of this machine and none, and a folder that both can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.walls.base import Walls

from .kit import BareWalls


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("candidates")
    for part in (found, *found.parents[:2]):
        part.chmod(0o755)
    return found


@pytest.fixture(scope="module")
def bare(folder: Path) -> BareWalls:
    return BareWalls(folder)


@pytest.fixture(scope="module", params=["walls", "bare"])
def walls(request: pytest.FixtureRequest, bare: BareWalls) -> object:
    return Walls.detect() if request.param == "walls" else bare
