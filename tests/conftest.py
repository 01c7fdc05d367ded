"""What tests in several places share."""

from __future__ import annotations

import pytest


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rounds on a machine whose disturbances are not looked at: for tests whose subject is something else."""
    from keepfast.judge import calibrate, clock, trial

    monkeypatch.setattr(clock, "PAIRS", 4)
    monkeypatch.setattr(clock, "STEAL_SHARE", 100.0)
    monkeypatch.setattr(clock, "DISTURBED_SHARE", 1.0)
    monkeypatch.setattr(trial, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(calibrate, "ROUNDS", 3)
    monkeypatch.setattr(calibrate, "PADS", (1, 2))


@pytest.fixture(scope="session")
def walled() -> None:
    """Skips where a run would be refused: on a machine without any walls."""
    from keepfast.walls.base import Walls

    if Walls.detect().strength == "none":
        pytest.skip("this machine has no walls, so keepfast refuses to run candidates (keepfast doctor)")
