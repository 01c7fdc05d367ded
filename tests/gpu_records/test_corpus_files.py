"""The corpus of tests/gpu as files: headers, coverage of the catalogue, and what can be tried of them without a GPU."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keepfast
from keepfast.model import SENTENCES, Kind, Reason
from tests.gpu.samples import FAMILIES, HERE, TASKS, Sample, header, samples
from tests.gpu_records.forked import launched

ALL = samples()
CHEATS, HONEST = [s for s in ALL if not s.honest], [s for s in ALL if s.honest]
KEYS = {"id", "family", "language", "task", "expect", "layer", "tries", "does", "like", "timed", "slow", "twice", "open", "idle"}
NEEDED = {
    False: {"id", "family", "language", "task", "expect", "layer", "tries"},
    True: {"id", "family", "language", "task", "expect", "like", "does"},
}
LAYERS = ("guard", "build", "plan", "correct", "rules", "time")
TIMED, SLOW = 8, 2  # at most: each takes ten seconds and more


def each(given: list[Sample]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("sample", given, ids=lambda s: s.name)


@each(ALL)
def test_every_file_parses_and_says_what_it_is(sample: Sample) -> None:
    ast.parse(sample.source)
    assert NEEDED[sample.honest] <= sample.said.keys() <= KEYS
    assert all(sample.said.values())
    assert sample.task in TASKS
    assert (HERE / "tasks" / sample.task / "task.toml").is_file()
    assert all(sample.said.get(key, "yes") == "yes" for key in ("timed", "slow", "twice"))


@each(CHEATS)
def test_a_cheat_has_a_family_a_layer_and_reasons_that_exist(sample: Sample) -> None:
    said = sample.said
    assert re.fullmatch(r"[THRGOCB]\d\d[a-z]?", said["id"])
    assert said["family"] == FAMILIES[said["id"][0]]
    reasons = [Reason(name) for name in sample.several("expect")]
    assert reasons
    assert all(SENTENCES[reason][0] is not Kind.KEEP for reason in reasons)
    assert sample.several("layer")
    assert set(sample.several("layer")) <= set(LAYERS)


@each(HONEST)
def test_an_honest_one_is_like_a_cheat(sample: Sample) -> None:
    said = sample.said
    assert said["expect"] == "pass"
    assert re.fullmatch(r"L\d\d", said["id"])
    assert re.fullmatch(r"[THRGOCB]\d\d[a-z]?", said["like"])
    assert said["family"] == FAMILIES[said["like"][0]]


def test_ids_and_names_are_unique() -> None:
    assert len({s.said["id"] for s in ALL}) == len({s.name for s in ALL}) == len(ALL)


def test_the_catalogue_is_covered() -> None:
    assert len(CHEATS) >= 30
    assert len(HONEST) >= 15
    assert {s.said["family"] for s in CHEATS} == set(FAMILIES.values())
    assert {s.task for s in ALL} == set(TASKS)


def test_what_takes_long_is_rare() -> None:
    assert sum(s.has("timed") for s in ALL) - sum(s.said["expect"] == "same-code" for s in ALL) <= TIMED
    assert sum(s.has("slow") for s in ALL) <= SLOW


def test_a_header_ends_at_the_first_line_that_is_none() -> None:
    assert header("# id: T01\n# open: a: b\n\n# id: T02\n") == {"id": "T01", "open": "a: b"}
    with pytest.raises(ValueError, match="twice"):
        header("# id: T01\n# id: T02\n")


# --------------------------------------------------------------------------------------------- without a GPU


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, object]]]:
    """How -> file -> what came of it."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
        pytest.skip("needs torch and Triton")
    place = tmp_path_factory.mktemp("forked")
    return {how: _forked(how, place / how) for how in ("compiled", "interpreted")}


def _forked(how: str, out: Path) -> dict[str, dict[str, object]]:
    folders = [str(Path(keepfast.__file__).parents[1]), str(HERE.parents[1])]
    run = "import sys; sys.path[:0] = sys.argv[3:]; from tests.gpu_records import forked; forked.main(*sys.argv[1:3])"
    subprocess.run([sys.executable, "-c", run, how, str(out), *folders], check=True, timeout=600)
    found: dict[str, dict[str, object]] = json.loads(out.read_text())
    return found


def test_every_kernel_compiles_for_the_card(tried: dict[str, dict[str, dict[str, object]]]) -> None:
    """Those that host code launches where there is no card; headers name the others."""
    found = tried["compiled"]
    assert len(found) > 50
    assert {name: said["error"] for name, said in found.items() if said["error"]} == {}
    for sample in (s for s in ALL if s.name in found):
        assert launched(sample) <= set(found[sample.name]["kernels"]), sample.name  # type: ignore[call-overload]


def test_honest_answers_are_right_and_wrong_ones_wrong(tried: dict[str, dict[str, dict[str, object]]]) -> None:
    found = tried["interpreted"]
    assert {s.name: found[s.name]["error"] for s in HONEST if s.name in found and found[s.name]["error"]} == {}
    assert [s.name for s in CHEATS if s.name in found and not found[s.name]["error"]] == []
    assert len(found) > 30
