from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast import native
from tests.walls.kit import MODES, Check, inside


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The hostile program, compiled: its bytes, since other users cannot reach the folder it lies in."""
    out = tmp_path_factory.mktemp("probe") / "probe"
    source = Path(__file__).parent / "probe.c"
    subprocess.run([str(native.compiler()), "-O1", "-pthread", str(source), "-o", str(out), "-lrt"], check=True)
    return out.read_bytes()


@pytest.fixture(params=MODES)
def walled(request: pytest.FixtureRequest, probe: bytes) -> Callable[[Check], None]:
    """Runs a check in each kind of walls that this machine has."""
    mode: str = request.param
    return lambda check: inside(mode, probe, check)
