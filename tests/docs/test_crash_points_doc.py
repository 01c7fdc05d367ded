"""docs/crash-points.md lists exactly the points in the code, in their order; and the code passes each of them."""

from __future__ import annotations

import re
from pathlib import Path

from keepfast import crash

ROOT = Path(__file__).parents[2]


def test_the_document_lists_exactly_the_points() -> None:
    text = (ROOT / "docs" / "crash-points.md").read_text()
    assert tuple(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)) == crash.POINTS
    assert len(crash.POINTS) >= 10


def test_every_point_is_somewhere_in_the_code_and_nowhere_twice() -> None:
    sources = "\n".join(p.read_text() for p in (ROOT / "src" / "keepfast").rglob("*.py"))
    found = re.findall(r'crash\.point\("([a-z-]+)"', sources)
    assert sorted(found) == sorted(crash.POINTS)
