"""Commands that change something: straight into the ledger when nobody runs, through the inbox when a run is going on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import keepfast as keepfast_package
from keepfast.lifecycle import SIGNED, clear
from keepfast.model import Reason
from keepfast.repo import Repo
from keepfast.report.suspects import by
from tests.cli.conftest import Call, Stand, git


def inbox(stand: Stand) -> list[tuple[str, str]]:
    with stand.ledger() as ledger:
        return [(c.command, c.argument) for c in ledger.take(stand.run)]


def test_an_idea_is_added_listed_and_dropped(keepfast: Call, stand: Stand) -> None:
    assert "idea 3 for softmax-rows" in keepfast("idea", "add", "keep the row in registers").out
    assert keepfast("idea", "drop", "3", "--because", "no registers left").code == 0
    listed = keepfast("idea", "list").out
    assert "keep the row in registers (no registers left)" in listed
    assert "dead" in listed.splitlines()[3]
    assert keepfast("idea", "drop", "9").code == 2
    assert keepfast("idea", "add", "  ").code == 2


def test_an_idea_for_a_task_that_never_ran_is_a_slip(keepfast: Call, stand: Stand) -> None:
    said = keepfast("idea", "add", "x", "--task", "softmax-row")
    assert said.code == 2
    assert "Did you mean `softmax-rows`?" in said.err


def test_a_run_that_is_going_on_gets_ideas_through_its_inbox(keepfast: Call, stand: Stand) -> None:
    with stand.ledger() as ledger, ledger.hold(stand.run.id):
        said = keepfast("idea", "add", "wider lanes", "--json")
    assert json.loads(said.out)["queued"] is True
    assert inbox(stand) == [("idea", "wider lanes")]


def test_stop_asks_the_run(keepfast: Call, stand: Stand) -> None:
    assert keepfast("stop").code == 2
    with stand.ledger() as ledger, ledger.hold(stand.run.id):
        said = keepfast("stop")
    assert said.code == 0
    assert "run softmax-1 stops after the experiment in flight" in said.out
    assert inbox(stand) == [("stop", "")]


def test_a_check_takes_no_messages(keepfast: Call, stand: Stand) -> None:
    with stand.ledger() as ledger, ledger.hold(""):
        said = keepfast("stop")
        assert "which takes no messages (pid " in said.err
        assert "now       a check, a calibration or the start of a run is going on" in keepfast("status").out
        assert keepfast("clear", "9", "--because", "x").code == 2
        assert keepfast("budget", "raise", "--dry", "50").code == 2
        assert "idea 3" in keepfast("idea", "add", "x").out
    assert inbox(stand) == []


HOLDER = """
import pathlib, signal, sys
from keepfast.ledger import Ledger
with Ledger.open(pathlib.Path(sys.argv[1])) as ledger, ledger.hold("softmax-1"):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    print("held", flush=True)
    for _ in range(2):
        signal.sigtimedwait([signal.SIGINT], 60)
        print("caught", flush=True)
"""


def test_stop_now_interrupts_twice(keepfast: Call, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    env = os.environ | {"PYTHONPATH": str(Path(keepfast_package.__file__).parents[1])}
    with subprocess.Popen((sys.executable, "-c", HOLDER, str(stand.state)), stdout=subprocess.PIPE, text=True, env=env) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "held\n"
        heard: list[str] = []
        monkeypatch.setattr("keepfast.cli.stop.time.sleep", lambda s: heard.append(run.stdout.readline()))  # type: ignore[union-attr]
        assert keepfast("stop", "--now").code == 0
    assert heard == ["caught\n"] * 2


def test_the_pid_of_another_machine_is_no_reason_to_fail(keepfast: Call, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(pid: int, number: int) -> None:
        assert number == signal.SIGINT
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)
    with stand.ledger() as ledger, ledger.hold(stand.run.id):
        assert keepfast("stop", "--now").code == 0


def test_a_budget_is_raised_for_the_next_session(keepfast: Call, stand: Stand) -> None:
    said = keepfast("budget", "raise", "--experiments", "60", "--hours", "2.5")
    assert said.code == 0
    assert "experiments 60 hours 2.5" in said.out
    with stand.ledger() as ledger:
        assert [(c.command, c.argument) for c in ledger.commands(stand.run.id)] == [("budget", "experiments=60 hours=2.5")]


def test_a_budget_is_raised_while_the_run_is_going_on(keepfast: Call, stand: Stand) -> None:
    with stand.ledger() as ledger, ledger.hold(stand.run.id):
        assert json.loads(keepfast("budget", "raise", "--dry", "30", "--json").out)["queued"] is True
    assert inbox(stand) == [("budget", "dry=30")]


def test_a_budget_command_does_not_go_to_another_run(keepfast: Call, stand: Stand) -> None:
    with stand.ledger() as ledger, ledger.hold("other-1"):
        said = keepfast("budget", "raise", "--run", "softmax-1", "--dry", "30")
    assert said.code == 2
    assert "another run holds this ledger" in said.err
    assert inbox(stand) == []
    assert keepfast("budget", "raise").code == 2


def test_a_suspect_is_cleared(keepfast: Call, stand: Stand) -> None:
    said = keepfast("clear", "9", "--because", "half of the rows are padding", "--yes")
    assert said.code == 0, said.err
    assert "cleared as experiment 12" in said.out
    with stand.ledger() as ledger:
        champion = ledger.champion(stand.run.id)
    assert champion is not None
    assert champion.verdict.reason is Reason.CLEARED
    assert "half of the rows are padding" in keepfast("show", "12").out
    assert "by Test <test@example.org>" in keepfast("show", "12").out
    assert "cleared by Test <test@example.org>" in keepfast("log").out
    assert "cleared by hand: experiment 12" in keepfast("report").out
    assert "was cleared before" in keepfast("clear", "9", "--because", "again", "--yes").out
    assert git(stand.root, "rev-parse", "keepfast/softmax-1^{tree}") == git(stand.root, "rev-parse", "refs/keepfast/softmax-1/9^{tree}")


def test_only_a_suspect_can_be_cleared_and_only_with_a_reason(keepfast: Call, stand: Stand) -> None:
    assert "is no suspect" in keepfast("clear", "6", "--because", "x").err
    assert keepfast("clear", "9").code == 2
    assert "for a reason" in keepfast("clear", "9", "--because", " ").err


def test_clearing_while_the_run_is_going_on_goes_through_the_inbox(keepfast: Call, stand: Stand) -> None:
    with stand.ledger() as ledger, ledger.hold(stand.run.id):
        assert "no suspect" in keepfast("clear", "6", "--because", "x").err
        assert keepfast("clear", "9", "--because", "padding", "--yes").code == 0
    ((command, argument),) = inbox(stand)
    assert (command, argument.split(SIGNED)) == ("clear", ["9 padding", "Test <test@example.org>"])
    with stand.ledger() as ledger:  # as the run's next turn does it
        made = clear(ledger, Repo.find(stand.root), stand.run, 9, argument.removeprefix("9 "))
    assert made is not None
    assert (made.verdict.detail, by(made)) == ("padding", "Test <test@example.org>")


def test_nobody_clears_where_there_is_no_terminal_to_ask_a_human(keepfast: Call, stand: Stand) -> None:
    said = keepfast("clear", "9", "--because", "I am the agent, and I am sure")
    assert said.code == 2
    assert "there is no terminal to ask one" in said.err
    with stand.ledger() as ledger:
        assert len(ledger.experiments(stand.run.id)) == 11


@pytest.mark.parametrize(("answer", "count"), [("n\n", 11), ("y\n", 12)])
def test_a_terminal_shows_the_evidence_and_asks(stand: Stand, answer: str, count: int) -> None:
    import pty

    shown, ours = b"", 0
    child, ours = pty.fork()
    if child == 0:
        environment = {**os.environ, "PYTHONPATH": str(Path(keepfast_package.__file__).parents[1])}
        os.execve(sys.executable, [sys.executable, "-m", "keepfast", "clear", "9", "--because", "padding"], environment)
    with open(ours, "r+b", buffering=0) as terminal:
        while b"clear experiment 9?" not in shown:
            shown += terminal.read(4096)
        terminal.write(answer.encode())
        with contextlib.suppress(OSError):  # the other end is closed
            while part := terminal.read(4096):
                shown += part
    os.waitpid(child, 0)
    assert b"1.21 ms, the limit is 2.00 ms" in shown
    with stand.ledger() as ledger:
        assert len(ledger.experiments(stand.run.id)) == count


def test_finalize_makes_a_branch_and_leaves_the_checkout(keepfast: Call, stand: Stand) -> None:
    said = keepfast("finalize", "--branch", "faster")
    assert said.code == 0, said.err
    assert "branch faster" in said.out
    subjects = git(stand.root, "log", "--format=%s", f"{stand.run.base}..faster").splitlines()
    assert subjects == ["exp by polynomial, 8 lanes", "one pass for max and sum"]
    assert git(stand.root, "branch", "--show-current") == "main"
    assert keepfast("finalize", "--branch", "faster").code == 2


def test_gc_drops_what_no_record_names(keepfast: Call, stand: Stand) -> None:
    with stand.ledger() as ledger:
        name = ledger.put_artifact(b"nobody needs this")
    old = stand.state / "artifacts" / name
    os.utime(old, (1, 1))
    said = keepfast("gc", "--json")
    assert said.code == 0
    assert {"name": "artifacts", "value": "1"} in json.loads(said.out)["facts"]
    assert not old.exists()
    assert git(stand.root, "rev-parse", "refs/keepfast/softmax-1/6")
    assert "the code of 8 candidates" in keepfast("gc", "--candidates", "0").out
    assert keepfast("show", "6").code == 0
    assert keepfast("show", "7", "--diff").code == 0


def test_a_run_of_another_task_is_not_confused(keepfast: Call, stand: Stand) -> None:
    with stand.ledger() as ledger:
        ledger.start(replace(stand.run, id="gemm-1", task="gemm", started=stand.run.started + 5))
    assert "idea 1 for gemm" in keepfast("idea", "add", "tiles").out
    assert "idea 3 for softmax-rows" in keepfast("idea", "add", "tiles", "--task", "softmax-rows").out


def test_init_writes_a_task_that_is_ready_to_check(keepfast: Call, empty: Path) -> None:
    said = keepfast("init", "my-task")
    assert said.code == 0, said.err
    assert (empty / "tasks/my-task/task.toml").is_file()
    assert "keepfast check tasks/my-task" in said.out
    assert "reference.py" not in said.out
    assert keepfast("init", "my-task").code == 2
    assert keepfast("init", "other", "--case", "n=4").code == 2
    assert not (empty / "tasks/other").exists()


def test_init_of_a_function_says_what_right_means_and_what_to_look_at(keepfast: Call, empty: Path) -> None:
    (empty / "k.c").write_text("void twice(const float *x, float *y, int n) { for (int i = 0; i < n; i++) y[i] = 2 * x[i]; }\n")
    (empty / "o.py").write_text("def twice(x):\n    return 2 * x\n")
    call = ("--from", "k.c:twice", "--signature", "twice(Tensor x) -> Tensor y", "--case", "n=4,400", "--flag=-DX")
    said = keepfast("init", "frozen", *call)
    assert said.code == 0, said.err
    assert "same as before, not proven right" in said.out
    assert "look at inputs() in tasks/frozen/reference.py, then: keepfast check tasks/frozen" in said.out
    assert '"-O2", "-DX"' in (empty / "tasks/frozen/task.toml").read_text()
    assert "not proven right" not in keepfast("init", "known", *call, "--oracle", "o.py:twice").out
