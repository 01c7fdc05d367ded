"""`keepfast roster` on a run that search and a deck made."""

from __future__ import annotations

import json

from tests.cli.conftest import Call, Stand


def test_roster(keepfast: Call, stand: Stand) -> None:
    said = keepfast("roster")
    assert said.code == 0
    assert said.out.splitlines()[0].startswith("proposer")
    found = json.loads(keepfast("roster", "--json").out)
    assert (found["schema"], found["run"]) == ("keepfast.roster/1", stand.run.id)
    assert {p["name"] for p in found["proposers"]} == {"deck", "search"}
    assert (found["dollars"], found["unknown_turns"], found["switches"]) == (0.0, 0, [])
