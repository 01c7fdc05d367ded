"""What is printed and what the exit code says; that the redteam can fail; that it goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast.errors import UsageError
from keepfast.redteam import attempt, command, table
from keepfast.redteam.attempt import Line, Result, Wanted, choose, key
from keepfast.redteam.command import Given, places
from keepfast.redteam.entries import Entry, entries, folders
from keepfast.redteam.outcome import Found, Outcome, state
from keepfast.walls.base import Walls

from .conftest import CHEAT_TOML, HONEST_TOML, Corpus

CAUGHT = Outcome(
    "R01p", "memo_by_pointer", "cpu", "c", False, "the same addresses as last time, so nothing to do", "caught", "stateful", "correct",
    "an old answer", 0.31, "", "R01p 0",
)  # fmt: skip
PASSED = replace(CAUGHT, id="L31", name="workspace", honest=True, words="a workspace", state="passed", reason="slower", layer="time")
MISSED = replace(CAUGHT, id="B10p", name="noop", words="nothing", state="missed", reason="faster", layer="", detail="", seconds=9.0)
OPEN = replace(MISSED, id="C04b", name="named", open="a kernel counts by its name")
ALARM = replace(PASSED, id="L36", name="two_threads", state="alarm", reason="return-code", detail="returned 1\x1b[2J")
VOID = replace(PASSED, id="L37", state="void", reason="machine", detail="somebody else worked")


def result(*outcomes: Outcome, skipped: str = "") -> Result:
    return Result(outcomes, skipped, 12.34)


def printed(*outcomes: Outcome, skipped: str = "") -> str:
    found = table.summary(result(*outcomes, skipped=skipped))
    return "\n".join([table.head(), *(table.row(o) for o in outcomes), *table.closing(found)]) + "\n"


def test_the_table_reads_as_it_should() -> None:
    golden = Path(__file__).parent / "golden" / "table.txt"
    assert printed(CAUGHT, PASSED, MISSED, OPEN, ALARM, VOID, skipped="132 entries for a GPU: no card") == golden.read_text()


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((CAUGHT, PASSED), 0),
        ((CAUGHT, PASSED, MISSED), 1),
        ((CAUGHT, OPEN), 1),
        ((CAUGHT, ALARM), 1),
        ((CAUGHT, VOID), 5),
        ((MISSED, VOID), 1),
        ((replace(CAUGHT, state="otherwise"),), 1),
        ((), 5),
    ],
)
def test_the_exit_code_is_0_only_when_nothing_is_missed(outcomes: tuple[Outcome, ...], code: int) -> None:
    assert table.code(table.summary(result(*outcomes))) == code


# --------------------------------------------------------------------------------------------- states


def entry(**said: str) -> Entry:
    return Entry("one", "cpu", said.get("expect") in ("pass", "faster"), tuple(said.items()), "", Path("one.c"))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Found(True, "wrong", "correct"), "caught"),
        (Found(True, "wrong", "time"), "otherwise"),
        (Found(True, "crash", "correct"), "otherwise"),
        (Found(False, "faster", kept=True), "missed"),
        (Found(False, "not here", void=True), "void"),
    ],
)
def test_a_cheat_is_caught_only_as_it_says(found: Found, said: str) -> None:
    assert state(entry(id="R01", expect="wrong, stateful", layer="correct"), found) == said


@pytest.mark.parametrize(
    ("expect", "found", "said"),
    [
        ("pass", Found(False, "faster", "time", kept=True), "passed"),
        ("pass", Found(True, "slower", "time"), "passed"),
        ("pass", Found(True, "wrong", "time"), "alarm"),
        ("pass", Found(True, "crash", "correct"), "alarm"),
        ("pass", Found(True, "interference", "time"), "alarm"),
        ("faster", Found(True, "no-gain", "time"), "alarm"),
        ("faster", Found(False, "faster", "time", kept=True), "passed"),
    ],
)
def test_an_honest_one_may_be_slow_and_not_refused(expect: str, found: Found, said: str) -> None:
    assert state(entry(id="L01", expect=expect), found) == said


# --------------------------------------------------------------------------------------------- the command


def given(folder: Path, **more: object) -> Given:
    return Given(**({"parts": ("cpu",), "corpus": folder} | more))  # type: ignore[arg-type]


def test_a_caught_cheat_and_a_passed_look_alike_are_exit_0(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    folder = corpus(cheats__origin__library=CHEAT_TOML, honest__origin__mine=HONEST_TOML)
    assert command.run(given(folder), "auto", False) == 0
    said = capsys.readouterr().out
    assert "cheats   1 of 1 caught: rules 1" in said
    assert "honest   1 of 1 passed, 0 false alarms" in said


def test_a_planted_miss_turns_the_exit_code(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel of its own, sold as a cheat: nothing ends it, and the redteam says so."""
    planted = HONEST_TOML.replace("L99", "C98").replace("expect: pass", "expect: language").replace("# like: C03q", "# layer: rules")
    folder = corpus(cheats__origin__planted=planted.replace("# does", "# tries"))
    assert command.run(given(folder), "auto", False) == 1
    said = capsys.readouterr().out
    assert "MISSED" in said
    assert "missed   1" in said


def test_a_planted_false_alarm_turns_the_exit_code(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    planted = CHEAT_TOML.replace("C99", "L98").replace("expect: language", "expect: pass").replace("# layer: rules", "# like: C01")
    folder = corpus(honest__origin__planted=planted.replace("# tries", "# does"))
    assert command.run(given(folder), "auto", False) == 1
    assert "FALSE ALARM" in capsys.readouterr().out


def test_json_is_one_object(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    folder = corpus(cheats__origin__library=CHEAT_TOML)
    assert command.run(given(folder), "auto", True) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "keepfast.redteam/1"
    assert (said["cheats"], said["caught"], said["missed"]) == (1, 1, 0)
    assert said["outcomes"][0]["layer"] == "rules"


def test_one_entry_by_id_or_name_and_a_near_miss_is_named() -> None:
    found = entries(folders())
    assert [e.name for e in choose(found, Wanted(only="R01p"))] == ["memo_by_pointer"]
    assert {e.kind for e in choose(found, Wanted(parts=("cpu",), only="memo_by_pointer"))} == {"cpu"}
    with pytest.raises(UsageError, match="memo_by_pointer"):
        choose(found, Wanted(only="memo_by_pionter"))


def test_quick_and_parts_choose() -> None:
    found = entries(folders())
    quick = choose(found, Wanted(parts=("cpu",), quick=True))
    assert 100 < len(quick) < len(choose(found, Wanted(parts=("cpu",))))
    assert {e.kind for e in choose(found, Wanted(parts=("gpu",)))} == {"gpu"}


# --------------------------------------------------------------------------------------------- resumption


def test_it_goes_on_where_it_was(corpus: Corpus, tmp_path: Path) -> None:
    folder = corpus(cheats__origin__library=CHEAT_TOML, honest__origin__mine=HONEST_TOML)
    out, walls, at = tmp_path / "out" / "redteam.jsonl", Walls.detect(), places(folder)
    wanted = Wanted(("cpu",), out=out)
    first = attempt.run(at, wanted, walls, lambda one: None)
    stored = out.read_bytes()
    assert len(stored.splitlines()) == 2
    out.write_bytes(stored.replace(b'"seconds":0.0', b'"seconds":77.0'))  # to be known again
    again = attempt.run(at, wanted, walls, lambda one: None)
    assert [o.seconds for o in again.outcomes] == [77.0, 77.0]
    assert [replace(o, seconds=0.0) for o in again.outcomes] == [replace(o, seconds=0.0) for o in first.outcomes]
    assert len(out.read_bytes().splitlines()) == 2


def test_what_is_cut_off_void_or_changed_is_tried_again(corpus: Corpus, tmp_path: Path) -> None:
    folder = corpus(cheats__origin__library=CHEAT_TOML, honest__origin__mine=HONEST_TOML)
    out, walls, at = tmp_path / "redteam.jsonl", Walls.detect(), places(folder)
    wanted = Wanted(("cpu",), out=out)
    first = attempt.run(at, wanted, walls, lambda one: None).outcomes
    here = attempt.machine(walls)
    void = attempt.msgspec.json.encode(Line(here, replace(first[0], state="void")))
    out.write_bytes(void + b"\n" + out.read_bytes().splitlines()[1][:40])
    assert [o.state for o in attempt.run(at, wanted, walls, lambda one: None).outcomes] == [o.state for o in first]
    assert len(out.read_bytes().splitlines()) == 4, "the void one, the line that was cut off, and both anew"
    changed = next(e for e in entries(at) if not e.honest)
    assert key(changed) != key(replace(changed, source=changed.source + "\n"))


def test_without_full_walls_nothing_is_claimed_of_what_needs_them() -> None:
    weak = replace(Walls.detect(), strength="partial")
    one = next(e for e in entries(folders()) if e.kind == "plan")
    with attempt.Answers(folders(), weak) as answers:
        found = answers.outcome(one)
    assert found.state == "void"
    assert "full walls" in found.detail
