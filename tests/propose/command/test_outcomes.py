"""Every way a turn can end, with output as the genuine CLIs print it (recorded against a stub of a model server)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from keepfast.propose.agent import Limits, Outcome
from keepfast.propose.command import NAMES, generic
from keepfast.propose.command.base import Options
from tests.propose.command.conftest import EDIT, Fake, job

NEW = (("kernel/kernel.c", b"int x; // NEW"),)


@pytest.mark.parametrize("name", NAMES)
def test_an_edit(fake: Fake, name: str) -> None:
    turn = fake(f"{EDIT}\nshow('{name}-edited')", name).turn(job())
    assert (turn.outcome, turn.changed) == (Outcome.EDITED, NEW)
    assert turn.title == "replaced OLD by NEW"
    assert turn.said == "Title: replaced OLD by NEW\nDone."
    assert turn.version == "1.2.3"
    assert turn.session
    assert turn.detail == "without isolation: it could read and write all that this user can"
    assert turn.seconds > 0


@pytest.mark.parametrize(
    ("name", "input_tokens", "cached", "dollars", "requests"),
    [
        ("claude", 280, 80, 0.000924, 2),
        ("codex", 200, 80, None, 0),
        ("opencode", 200, 80, 0.00016, 2),
        ("gemini", 200, 80, None, 0),
        ("pi", 200, 80, 0.00016, 2),
    ],
)
def test_the_bill(fake: Fake, name: str, input_tokens: int, cached: int, dollars: float | None, requests: int) -> None:
    usage = fake(f"{EDIT}\nshow('{name}-edited')", name).turn(job()).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.requests) == (input_tokens, 20, cached, requests)
    assert usage.dollars == (None if dollars is None else pytest.approx(dollars))


def test_a_price_where_the_cli_tells_none(fake: Fake) -> None:
    agent = fake(f"{EDIT}\nshow('gemini-edited')", "gemini", price=lambda model, usage: 2.0 if model == "gemini-2.5-pro" else None)
    assert agent.turn(job()).usage.dollars == 2.0
    agent = fake(f"{EDIT}\nshow('codex-edited')", "codex", options=Options(model="m1"), price=lambda m, usage: 3.0 if m == "m1" else None)
    assert agent.turn(job()).usage.dollars == 3.0


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_turn_without_an_edit(fake: Fake, name: str) -> None:
    turn = fake(f"show('{name}-edited')", name).turn(job())
    assert (turn.outcome, turn.changed) == (Outcome.NOTHING, ())


@pytest.mark.parametrize("name", NAMES)
def test_a_refusal(fake: Fake, name: str) -> None:
    turn = fake(f"show('{name}-refused')", name).turn(job())
    assert turn.outcome is Outcome.REFUSED
    assert turn.detail.startswith("it says: I'm sorry, but I can't help with that.")
    assert fake(f"{EDIT}\nshow('{name}-refused')", name).turn(job()).outcome is Outcome.EDITED, "words do not count when it edited"


@pytest.mark.parametrize("words", ["Provider finish_reason: content_filter", "unable to respond to this request: Usage Policy"])
def test_a_refusal_that_ends_as_an_error(fake: Fake, words: str) -> None:
    turn = fake(f"import sys\nprint({words!r}, file=sys.stderr)\nsys.exit(1)", "claude").turn(job())
    assert turn.outcome is Outcome.REFUSED
    assert fake("import sys\nsys.exit(1)", "claude").turn(job()).outcome is Outcome.CRASHED


@pytest.mark.parametrize(("name", "what"), [("claude", "Bash curl http://example.invalid/"), ("gemini", 'Tool "run_shell_command"')])
def test_a_question_that_nobody_answers(fake: Fake, name: str, what: str) -> None:
    turn = fake(f"show('{name}-asked')", name).turn(job())
    assert turn.outcome is Outcome.PERMISSION
    assert what in turn.detail
    assert fake(f"{EDIT}\nshow('{name}-asked')", name).turn(job()).outcome is Outcome.EDITED


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("codex", {"type": "item.completed", "item": {"type": "command_execution", "command": "curl x", "status": "declined"}}),
        ("opencode", {"type": "tool_use", "part": {"tool": "bash", "state": {"error": "The user rejected permission to use this tool"}}}),
    ],
)
def test_a_question_in_other_words(fake: Fake, name: str, line: dict[str, object]) -> None:
    turn = fake(f"print({json.dumps(line)!r})\nshow('{name}-edited')", name).turn(job())
    assert turn.outcome is Outcome.PERMISSION


@pytest.mark.parametrize(("name", "status"), [("opencode", 1), ("gemini", 145), ("pi", 0)])
def test_no_key(fake: Fake, name: str, status: int) -> None:
    turn = fake(f"show('{name}-no-key')\nsys.exit({status})", name).turn(job())
    assert turn.outcome is Outcome.AUTHENTICATION
    assert "invalid x-api-key" in turn.detail


@pytest.mark.parametrize(
    "said", ["Not logged in \u00b7 Please run /login", "Invalid API key", "Please set an Auth method in your settings"]
)
def test_no_key_without_an_event(fake: Fake, said: str) -> None:
    turn = fake(f"print({said!r}, file=sys.stderr)\nsys.exit(41)").turn(job())
    assert (turn.outcome, said.split()[0] in turn.detail) == (Outcome.AUTHENTICATION, True)


@pytest.mark.parametrize("case", ["no-key", "limited"])
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_waiting_for_what_will_not_come(fake: Fake, monkeypatch: pytest.MonkeyPatch, name: str, case: str) -> None:
    """They would wait a minute and try again, four times; keepfast waits better."""
    monkeypatch.setattr("keepfast.propose.command.listen.PATIENCE_S", 0.3)
    turn = fake(f"show('{name}-{case}')\ntime.sleep(60)", name).turn(job())
    assert turn.outcome is (Outcome.AUTHENTICATION if case == "no-key" else Outcome.RATE_LIMITED)
    assert turn.seconds < job().limits.seconds
    if (name, case) == ("claude", "limited"):
        assert turn.until == pytest.approx(time.time() + 60, abs=20)


def test_waiting_in_the_error_output(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfast.propose.command.listen.PATIENCE_S", 0.3)
    line = 'level=ERROR message="stream error" small=false error.error="AI_APICallError: Rate limit reached for requests"'
    turn = fake(f"print({line!r}, file=sys.stderr, flush=True)\ntime.sleep(60)", "opencode").turn(job())
    assert turn.outcome is Outcome.RATE_LIMITED
    line = "Attempt 1 failed with status 429. Retrying with backoff... _ApiError: please retry in 32.5s"
    turn = fake(f"print({line!r}, file=sys.stderr, flush=True)\ntime.sleep(60)", "gemini").turn(job())
    assert turn.outcome is Outcome.RATE_LIMITED
    assert turn.until == pytest.approx(time.time() + 32.5, abs=20)


def test_an_error_that_was_mended_is_none(fake: Fake) -> None:
    retry = {"type": "system", "subtype": "api_retry", "attempt": 1, "retry_delay_ms": 900, "error_status": 429, "error": "rate_limit"}
    body = f"print({json.dumps(retry)!r}, flush=True)\ntime.sleep(0.5)\n{EDIT}\nshow('claude-edited')"
    assert fake(body).turn(job()).outcome is Outcome.EDITED


def test_a_rate_limit_with_its_end(fake: Fake) -> None:
    end = int(time.time()) + 3600
    event = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": end}}
    last = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429, "result": "You've hit your limit"}
    turn = fake(f"print({json.dumps(event)!r})\nprint({json.dumps(last)!r})\nsys.exit(1)").turn(job())
    assert (turn.outcome, turn.until) == (Outcome.RATE_LIMITED, float(end))


def test_over_budget_by_its_own_word(fake: Fake) -> None:
    last = {"type": "result", "subtype": "error_max_budget_usd", "is_error": True, "total_cost_usd": 0.6, "num_turns": 3}
    turn = fake(f"{EDIT}\nprint({json.dumps(last)!r})\nsys.exit(1)").turn(job(limits=Limits(seconds=20, dollars=0.5)))
    assert (turn.outcome, turn.usage.dollars) == (Outcome.OVER_BUDGET, 0.6)


def test_over_budget_while_it_works(fake: Fake) -> None:
    step = {"type": "step_finish", "part": {"reason": "tool-calls", "tokens": {"input": 5}, "cost": 0.3}}
    body = f"for i in range(2):\n    print({json.dumps(step)!r}, flush=True)\ntime.sleep(60)"
    turn = fake(body, "opencode").turn(job(limits=Limits(seconds=20, dollars=0.5)))
    assert turn.outcome is Outcome.OVER_BUDGET
    assert turn.detail.startswith("ended at 0.60 dollars; its limit was 0.50")
    assert turn.seconds < 20


def test_the_limit_of_turns(fake: Fake) -> None:
    item = {"type": "item.completed", "item": {"type": "command_execution", "status": "completed"}}
    body = f"for i in range(100):\n    print({json.dumps(item)!r}, flush=True)\n    time.sleep(0.05)"
    turn = fake(body, "codex").turn(job(limits=Limits(seconds=20, turns=3)))
    assert (turn.outcome, turn.detail.split(";")[0]) == (Outcome.TIMED_OUT, "ended after 3 steps, its limit")
    last = {"type": "result", "subtype": "error_max_turns", "is_error": True}
    assert fake(f"print({json.dumps(last)!r})\nsys.exit(1)").turn(job()).outcome is Outcome.TIMED_OUT


def test_the_limit_of_time(fake: Fake) -> None:
    turn = fake(f"{EDIT}\ntime.sleep(60)").turn(job(limits=Limits(seconds=0.5)))
    assert turn.outcome is Outcome.TIMED_OUT
    assert turn.detail.startswith("ended after 0.5 s, its limit")
    assert turn.seconds < 30


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("claude", "print('Error: cannot find module x', file=sys.stderr)\nsys.exit(3)", "exit status 3: Error: cannot find module x"),
        ("claude", "os.kill(os.getpid(), 11)", "ended by signal 11"),
        ("codex", "show('codex-unreachable')\nsys.exit(1)", "exit status 1: stream disconnected before completion"),
        ("pi", "show('pi-unreachable')", "it says that it failed: Connection error."),
        ("codex", f'{EDIT}\nprint(\'{{"type":"turn.started"}}\')', "it ended without the event that ends a turn"),
    ],
)
def test_a_crash(fake: Fake, name: str, body: str, said: str) -> None:
    turn = fake(body, name).turn(job())
    assert turn.outcome is Outcome.CRASHED
    assert turn.detail.startswith(said)


def test_a_key_that_is_only_mentioned_is_no_failed_login(fake: Fake) -> None:
    turn = fake("print('Both keys are set. Using GOOGLE_API_KEY.\\nTypeError: x is undefined', file=sys.stderr); sys.exit(1)").turn(job())
    assert turn.outcome is Outcome.CRASHED


def test_no_event_at_all(fake: Fake) -> None:
    turn = fake("print('Welcome to the future!')").turn(job())
    assert turn.outcome is Outcome.MALFORMED
    assert "Welcome to the future!" in turn.detail


def test_not_installed(fake: Fake, tmp_path: Path) -> None:
    agent = fake("")
    (tmp_path / "bin" / "claude").unlink()
    turn = agent.turn(job())
    assert (turn.outcome, turn.detail) == (Outcome.MISSING, "claude was not found on PATH")


def test_a_program_that_cannot_be_started(fake: Fake, tmp_path: Path) -> None:
    agent = fake("")
    (tmp_path / "bin" / "claude").write_text("#!/nowhere/at/all\n", encoding="utf-8")
    turn = agent.turn(job())
    assert turn.outcome is Outcome.CRASHED
    assert "cannot be started: No such file or directory" in turn.detail


def test_any_command(fake: Fake) -> None:
    spec = generic.spec("mine", "mine --dir={workspace} {session} {prompt}")
    turn = fake(f"{EDIT}\nprint(len(sys.argv), sys.argv[1] == '--dir=' + os.getcwd(), 'BRIEF.md' in sys.argv[2])", spec=spec).turn(job())
    assert (turn.outcome, turn.said) == (Outcome.EDITED, "3 True True")
    assert fake("sys.exit(2)", spec=spec).turn(job()).outcome is Outcome.CRASHED
    assert fake("print('I cannot help with that.')", spec=spec).turn(job()).outcome is Outcome.REFUSED
    assert fake("print('Fine as it is.')", spec=spec).turn(job()).outcome is Outcome.NOTHING
    assert fake("print('HTTP 429', file=sys.stderr); sys.exit(1)", spec=spec).turn(job()).outcome is Outcome.RATE_LIMITED
