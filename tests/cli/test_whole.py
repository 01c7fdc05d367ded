"""The real loop over recorded verdicts, watched by the live view, then read and changed by every command."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from keepfast import loop
from keepfast.ledger import Ledger
from keepfast.model import End
from keepfast.repo import Repo
from keepfast.report import book, summary
from keepfast.report.live import Live
from tests.cli.conftest import Call, git
from tests.loop import kit


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, End, list[str]]:
    """What the live view printed, how the run ended, and its closing lines."""
    root = tmp_path / "repo"
    root.mkdir()
    where = kit.repository(root)
    monkeypatch.chdir(root)
    out = StringIO()
    with Ledger.open(Repo.find(where).ensure_state()) as ledger:
        session = kit.eventful(where, ledger)
        with Live(session.task, session.run, Console(file=out, force_terminal=False)) as live:
            end = loop.run(replace(session, on_event=live))
        lines = summary.end(book.read(ledger, end.run, session.task), end.why)
    return out.getvalue(), end, lines


def test_the_live_view_shows_every_experiment_once(ended: tuple[str, End, list[str]]) -> None:
    shown, end, _ = ended
    numbers = [int(row[:3]) for row in shown.splitlines() if row[:3].strip().isdigit()]
    assert numbers == list(range(1, 15))
    assert all(len(row) <= 100 for row in shown.splitlines())
    assert "budget: 47 of 50 experiments left" in shown
    assert shown.count("     direct ") == 4
    assert end.state == "deck-done"


def test_the_closing_lines_say_what_to_ship(ended: tuple[str, End, list[str]]) -> None:
    _, end, lines = ended
    text = " ".join(" ".join(lines).split())
    assert "champion: 1.97x over start [1.96, 1.98], measured directly, 6 rounds; 1.46x over baseline numpy" in text
    assert "7 kept, 3 reverted, 2 rejected (1 of them a cheat), 1 void" in text
    assert f"git merge {end.run.branch}" in text


def test_every_command_reads_it(ended: tuple[str, End, list[str]], keepfast: Call) -> None:
    assert len(keepfast("log").out.splitlines()) == 15
    report = json.loads(keepfast("report", "--json").out)
    assert report["champion"] == 14
    assert report["tally"]["kept"] == 7
    assert report["total"]["direct"] is True
    assert Path(report["html"]).is_file()
    for n in range(1, 15):
        said = keepfast("show", str(n))
        assert said.code == 0, said.err
    assert "+    return 2;" in keepfast("show", "3", "--diff").out
    assert "keep the row in registers" in keepfast("idea", "list").out
    assert "ended, nothing left to propose" in keepfast("status").out


def test_finalize_after_a_real_run(ended: tuple[str, End, list[str]], keepfast: Call) -> None:
    said = keepfast("finalize", "--json")
    assert said.code == 0, said.err
    facts = {f["name"]: f["value"] for f in json.loads(said.out)["facts"]}
    assert len(git(Path.cwd(), "log", "--format=%h", f"{facts['base']}..{facts['branch']}").splitlines()) == 7
