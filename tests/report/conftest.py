"""The sample run, the golden files, and a fixed time zone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """`golden(name, text)` compares with golden/NAME. KEEPFAST_GOLDEN=write writes it: read the difference before you commit it."""

    def compare(name: str, text: str) -> None:
        path = HERE / "golden" / name
        if os.environ.get("KEEPFAST_GOLDEN") == "write":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
