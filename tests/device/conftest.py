from __future__ import annotations

import pytest

from keepfast.judge.contents import Library


@pytest.fixture(scope="session")
def library() -> Library:
    return Library()
