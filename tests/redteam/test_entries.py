"""The corpora as data: every entry says what it is, ids are unique, the catalogue is covered."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from keepfast.errors import UsageError
from keepfast.model import SENTENCES, Kind, Reason
from keepfast.redteam import attacks
from keepfast.redteam.entries import FAMILIES, KINDS, LANGUAGES, Entry, Folders, entries, folders, header
from keepfast.redteam.rounds import NO_GOAL
from keepfast.redteam.tasks import REFUSED

ALL = entries(folders())
CHEATS, HONEST = [e for e in ALL if not e.honest], [e for e in ALL if e.honest]
KEYS = {
    *("id", "family", "language", "task", "expect", "layer", "tries", "does", "like"),
    *("timed", "slow", "quick", "twice", "against", "open", "idle"),
}
ID = r"[THRGOCB]\d\d[a-z]?"
LAYERS = {
    "gpu": {"guard", "build", "plan", "correct", "rules", "time"},
    "cpu": {"guard", "build", "correct", "time"},
    "hostile": {"guard", "build", "correct", "time"},
    "plan": {"plan"},
    "origin": {"rules"},
    "task": {"load", "lint"},
    "proposal": {"proposal", "guard"},
    "statistics": {"time", "loop"},
}
OWN = {"task": {REFUSED}, "statistics": {NO_GOAL}}  # reasons that are no verdict's


def each(given: list[Entry]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", given, ids=lambda e: f"{e.kind}-{e.id}")


def test_the_corpora_are_large_enough() -> None:
    assert len(CHEATS) >= 90
    assert len(HONEST) >= 45
    assert len([e for e in CHEATS if e.kind != "hostile"]) >= 190, "those of this corpus's own"


def test_all_kinds_families_and_languages_are_there() -> None:
    assert {e.kind for e in CHEATS} == set(KINDS)
    assert {e.kind for e in HONEST} == set(KINDS) - {"hostile"}
    assert {e.said["family"] for e in CHEATS} == set(FAMILIES.values())
    assert {e.said["language"] for e in CHEATS} == set(LANGUAGES)


def test_ids_are_unique_and_names_within_a_kind() -> None:
    assert [i for i, n in Counter(e.id for e in ALL).items() if n > 1] == []
    assert [i for i, n in Counter((e.kind, e.name) for e in ALL).items() if n > 1] == []


@each(CHEATS)
def test_a_cheat_says_what_it_is_and_how_it_must_end(entry: Entry) -> None:
    said = entry.said
    assert {"id", "family", "language", "task", "expect", "layer", "tries"} <= said.keys() <= KEYS
    assert re.fullmatch(ID, entry.id)
    assert said["family"] == FAMILIES[entry.id[0]]
    assert set(entry.several("layer")) <= LAYERS[entry.kind]
    reasons = set(entry.several("expect")) - OWN.get(entry.kind, set())
    ends = {Reason(name) for name in reasons}  # ValueError for one that does not exist
    assert entry.several("expect")
    assert all(SENTENCES[r][0] is not Kind.KEEP for r in ends)


@each(HONEST)
def test_an_honest_one_says_what_it_looks_like(entry: Entry) -> None:
    said = entry.said
    assert {"id", "family", "language", "task", "expect", "like", "does"} <= said.keys() <= KEYS
    assert re.fullmatch(r"L\d\d", entry.id)
    assert said["expect"] in ("pass", "faster")
    assert re.fullmatch(ID, said["like"])
    assert said["family"] == FAMILIES[said["like"][0]]
    assert any(e.id.startswith(said["like"]) for e in CHEATS), "no such cheat"


@each([e for e in ALL if e.kind in ("cpu", "hostile", "task", "proposal", "statistics")])
def test_its_task_is_there(entry: Entry) -> None:
    at = folders()
    assert (at.cpu / entry.task / "task.toml").is_file()
    if "against" in entry.said:
        assert (at.cpu / entry.task / entry.said["against"]).is_file()


@each([e for e in ALL if e.path.suffix == ".toml"])
def test_data_is_toml(entry: Entry) -> None:
    tomllib.loads(entry.source)


def test_every_attack_of_the_other_folder_has_its_place() -> None:
    """All but one, whose work is right: it only hides."""
    assert {a.name for a in attacks.kinds()} - {e.name for e in ALL if e.kind == "hostile"} == {"another_name"}
    known = {a.name: {r.value for r in a.right} for a in attacks.kinds()}
    assert [e.name for e in ALL if e.kind == "hostile" and set(e.several("expect")) != known[e.name]] == []


def test_a_header_ends_at_the_first_line_that_is_none() -> None:
    assert header("// id: T01\n// open: a: b\n\n// id: T02\n") == {"id": "T01", "open": "a: b"}
    with pytest.raises(ValueError, match="twice"):
        header("# id: T01\n# id: T02\n")


def test_a_folder_without_entries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no entry"):
        entries(Folders(tmp_path, tmp_path, tmp_path, tmp_path, tmp_path))
