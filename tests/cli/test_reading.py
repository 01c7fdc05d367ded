"""Commands that read: status, log, show, report, idea list; from a ledger, also while a run holds it."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli.conftest import Call, Sleepless, Stand, git
from tests.report import samples

Golden = Callable[[str, str], None]


def test_the_golden_objects(keepfast: Call, stand: Stand, golden: Golden) -> None:
    golden("cli-log.json", keepfast("log", "--json").out)
    golden("cli-status.json", keepfast("status", "--json").out)
    golden("cli-show-7.json", keepfast("show", "7", "--diff", "--json").out)
    golden("cli-report.json", keepfast("report", "--json").out.replace(str(stand.root), "ROOT"))
    golden("cli-ideas.json", keepfast("idea", "list", "--json").out)


def test_every_object_names_its_schema(keepfast: Call, stand: Stand) -> None:
    for words in ("log", "status", "show 7", "report", "idea list"):
        said = keepfast(*words.split(), "--json")
        assert said.code == 0
        assert re.fullmatch(r"keepfast\.[a-z]+/\d+", json.loads(said.out)["schema"])


def test_text_fits_a_pipe(keepfast: Call, stand: Stand) -> None:
    for words in ("log", "status", "show 2 --rounds", "show 6", "report", "idea list"):
        said = keepfast(*words.split())
        assert said.code == 0, said.err
        assert "\x1b" not in said.out
        assert all(len(one) <= 100 for one in said.out.splitlines())


def test_log_shows_the_newest_and_says_how_many_are_left_out(keepfast: Call, stand: Stand) -> None:
    said = keepfast("log", "--newest", "3")
    assert "8 earlier experiments: keepfast log --newest 0" in said.out
    assert len(said.out.splitlines()) == 5
    assert len(keepfast("log", "--newest", "0").out.splitlines()) == 12


def test_raw_rounds_are_shown_when_asked_for(keepfast: Call, stand: Stand) -> None:
    assert "screen" in keepfast("show", "2", "--rounds").out.split("rounds   phase")[1]
    assert "rounds   phase" not in keepfast("show", "2").out


def test_a_diff_in_a_pipe_applies(keepfast: Call, stand: Stand) -> None:
    said = keepfast("show", "2", "--diff")
    assert "+int v = 2;" in said.out
    subprocess.run(("git", "apply"), cwd=stand.root, input=said.out.encode(), check=True)
    assert (stand.root / "kernel.c").read_text() == "int v = 2;\n"


def test_a_diff_cannot_steer_a_terminal(keepfast: Call, stand: Stand) -> None:
    blob = subprocess.run(
        ("git", "hash-object", "-w", "--stdin"),
        cwd=stand.root,
        input=b"a\tb \x1b[2J \xc2\x9b1m\r over\r\n",
        check=True,
        capture_output=True,
    )
    line = f"100644 blob {blob.stdout.decode().strip()}\tkernel.c\n"
    tree = subprocess.run(("git", "mktree"), cwd=stand.root, input=line.encode(), check=True, capture_output=True).stdout.decode().strip()
    commit = git(stand.root, "commit-tree", tree, "-p", stand.run.base, "-m", "x")
    with stand.ledger() as ledger:
        ledger.append(stand.run.id, replace(samples.experiments()[3], n=12, parent=1, commit=commit, tree="f" * 64))
    said = keepfast("show", "12", "--diff")
    assert "+a\tb \\x1b[2J \\x9b1m\\x0d over\r\n" in said.out


def test_the_start_has_no_diff_and_what_was_not_stored_says_so(keepfast: Call, stand: Stand) -> None:
    assert keepfast("show", "1", "--diff").out == ""
    said = keepfast("show", "11", "--diff")
    assert said.code == 2
    assert "turned away before it was stored" in said.err


def test_the_report_is_written_where_it_says(keepfast: Call, stand: Stand, tmp_path: Path) -> None:
    said = keepfast("report")
    assert "report   .keepfast/report/softmax-1.html" in said.out
    page = (stand.state / "report/softmax-1.html").read_text(encoding="utf-8")
    assert "+int v = 7;" in page
    assert "(turned away before it was stored)" in page
    elsewhere = tmp_path / "x" / "page.html"
    assert keepfast("report", "--output", str(elsewhere)).code == 0
    assert elsewhere.exists()
    assert git(stand.root, "status", "--porcelain", "-uno") == ""


def test_a_page_that_cannot_be_written_is_one_message(keepfast: Call, stand: Stand) -> None:
    (stand.state / "report").write_text("in the way")
    said = keepfast("report")
    assert said.code == 1
    assert "cannot be written" in said.err
    assert "Traceback" not in said.err


def test_unknown_things_name_the_nearest(keepfast: Call, stand: Stand) -> None:
    said = keepfast("log", "--run", "softmx-1")
    assert said.code == 2
    assert "Did you mean `softmax-1`?" in said.err
    assert keepfast("show", "99").code == 2
    typo = keepfast("statsu")
    assert typo.code == 2
    assert "Did you mean 'status'?" in typo.err
    assert keepfast("log", "--newst", "3").code == 2


@pytest.mark.parametrize(
    "words", ["status", "log", "show 1", "report", "stop", "idea list", "idea add x", "budget raise --dry 9", "finalize", "gc"]
)
def test_without_a_run_every_command_says_so_and_makes_nothing(keepfast: Call, empty: Path, words: str) -> None:
    said = keepfast(*words.split())
    assert said.code == 2
    assert "keepfast run TASK" in said.err
    assert sorted(p.name for p in empty.iterdir()) == [".git", "kernel.c"]


def test_outside_a_repository(keepfast: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = keepfast("status")
    assert said.code == 2
    assert "not inside a git repository" in said.err


def test_reading_works_while_a_run_is_going_on(keepfast: Call, stand: Stand) -> None:
    with stand.ledger() as ledger, ledger.hold(stand.run.id):
        ledger.end(stand.run.id, "running")
        status = keepfast("status")
        assert "softmax-1: running (pid " in status.out
        assert "keepfast log --follow   |   keepfast stop" in status.out
        assert json.loads(keepfast("status", "--json").out)["holder"].startswith("pid ")
        for words in ("log", "show 7", "report", "idea list"):
            assert keepfast(*words.split()).code == 0


def test_follow_prints_what_comes_and_ends_with_the_run(keepfast: Call, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfast.cli.log.PAUSE_SECONDS", 0.02)
    held, looked, done = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr("keepfast.cli.log.time", Sleepless(looked))

    def go() -> None:
        with stand.ledger() as ledger, ledger.hold(stand.run.id):
            held.set()
            looked.wait(30)
            for n in (12, 13):
                ledger.append(stand.run.id, replace(samples.experiments()[2], n=n, title=f"later {n}", tree=f"{n:064x}"))
                time.sleep(0.05)
        done.set()

    worker = threading.Thread(target=go)
    worker.start()
    held.wait(30)
    said = keepfast("log", "--follow", "--newest", "2", "--json")
    worker.join(30)
    assert done.is_set()
    found = [json.loads(one)["experiments"][0]["n"] for one in said.out.splitlines()]
    assert found == [10, 11, 12, 13]
    assert "later" not in keepfast("log", "--follow", "--newest", "1").out.splitlines()[0]


def test_follow_waits_for_a_run_that_is_being_prepared(keepfast: Call, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfast.cli.log.PAUSE_SECONDS", 0.02)
    held, looked = threading.Event(), threading.Event()
    monkeypatch.setattr("keepfast.cli.log.time", Sleepless(looked))

    def go() -> None:
        with stand.ledger() as ledger, ledger.hold("softmax-2"):
            held.set()
            looked.wait(30)
            ledger.start(replace(stand.run, id="softmax-2", started=stand.run.started + 100))
            ledger.append("softmax-2", replace(samples.experiments()[0], title="the second run"))

    worker = threading.Thread(target=go)
    worker.start()
    held.wait(30)
    said = keepfast("log", "--follow")
    worker.join(30)
    assert "the second run" in said.out
    assert "polynomial" not in said.out


def test_status_names_the_other_runs(keepfast: Call, stand: Stand) -> None:
    with stand.ledger() as ledger:
        ledger.start(replace(stand.run, id="softmax-2", started=stand.run.started + 100))
    assert "softmax-1   (keepfast status --run NAME)" in keepfast("status").out
    assert "experiment 7" in keepfast("status", "--run", "softmax-1").out
