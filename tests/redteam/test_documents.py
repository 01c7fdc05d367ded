"""What the documents say of the corpora is so: ids exist, counts are right, what is open is written down."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from keepfast.redteam.entries import KINDS, entries, folders

DOCS = Path(__file__).parents[2] / "docs"
ALL = entries(folders())
IDS = {e.id for e in ALL}


def mentioned(text: str) -> set[str]:
    return set(re.findall(r"\b[THRGOCBL]\d\d[a-z]?\b", text))


def test_every_published_hole_is_answered_by_an_entry_that_exists() -> None:
    text = (DOCS / "trust.md").read_text().split("## Holes that other harnesses")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| hole", "| ---"))]
    assert len(rows) >= 20
    assert [row for row in rows if not mentioned(row) & IDS] == []
    assert mentioned(text) - IDS == set()


def test_the_decision_names_entries_that_exist() -> None:
    assert mentioned((DOCS / "decisions" / "0009-what-redteam-found.md").read_text()) - IDS == set()


def test_the_counts_are_right() -> None:
    text = (DOCS / "redteam.md").read_text()
    said = {kind: re.search(rf"\| `{kind}(?:\.toml)?` \|.*\| (\d*) \| (\d*) ?\|", text) for kind in KINDS}
    counts = Counter((e.kind, e.honest) for e in ALL)
    for kind, match in said.items():
        assert match is not None, kind
        assert tuple(int(n or 0) for n in match.groups()) == (counts[kind, False], counts[kind, True]), kind
