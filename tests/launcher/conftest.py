"""A launcher on a card made of host memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.launcher import fake
from tests.launcher.world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World(fake.Fake(), (fake.our_image(), fake.plan_image()))
    yield made
    made.close()
