"""What tests in several places share."""

from __future__ import annotations

import random
import sys
from contextlib import suppress

import pytest

with suppress(ImportError):  # where it is not installed, the tests that need it say so themselves
    from hypothesis import HealthCheck, settings

    # The same examples in every run, however busy the machine is. `--hypothesis-profile=default` looks for new ones.
    settings.register_profile("keepfast", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("keepfast")


@pytest.fixture(autouse=True)
def _same_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What names no seed draws the same in every run, whichever tests came before it in this process."""
    random.seed(0)
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(0)
    if (lint := sys.modules.get("keepfast.oracle.lint")) is not None:
        monkeypatch.setattr(lint, "random_seed", lambda: tuple(random.getrandbits(32) for _ in range(4)))


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
