"""The quick part of both corpora, each entry through what has to answer it: walls, compiler, runner, plan reader, rules, lint, loop."""

from __future__ import annotations

import pytest

from keepfast.redteam.attempt import Answers
from keepfast.redteam.entries import Entry, entries, folders

QUICK = [e for e in entries(folders()) if e.quick and e.kind != "gpu"]


@pytest.mark.parametrize("entry", QUICK, ids=lambda e: f"{e.kind}-{e.id}-{e.name}".replace("/", "-"))
def test_a_cheat_is_caught_and_an_honest_one_passes(answers: Answers, entry: Entry) -> None:
    found = answers.outcome(entry)
    assert found.state == ("passed" if entry.honest else "caught"), f"{found.reason} in {found.layer}: {found.detail}"


def test_the_quick_part_has_both_and_every_kind() -> None:
    assert sum(not e.honest for e in QUICK) >= 100
    assert sum(e.honest for e in QUICK) >= 20
    assert {e.kind for e in QUICK} == {"plan", "origin", "task", "proposal", "statistics", "cpu", "hostile"}
