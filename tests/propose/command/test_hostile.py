"""Output and processes that mean harm: they cost no memory, end no harness, and nothing of them is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepfast.propose.agent import Limits, Outcome
from keepfast.propose.command import NAMES, named
from keepfast.propose.command.listen import Lines
from keepfast.propose.command.notes import MAX_LINE, Notes, count, dollars, plain, read_event
from tests.propose.command.conftest import EDIT, Fake, alive, descriptors, job

JUNK = [
    b"", b"\x00\xff\xfe", b"null", b"[1,2]", b"{", b'{"type":', b"{" * 100_000, b'{"a":' * 100_000, b"[" * 100_000,
    b'{"type": "result", "total_cost_usd": NaN, "usage": {"input_tokens": -5, "output_tokens": 1e400}, "permission_denials": 7}',
    b'{"type": "result", "num_turns": ' + b"9" * 5000 + b"}",
    b'{"type": "assistant", "message": {"content": {"text": []}}}',
    b'{"type": "assistant", "message": [], "session_id": "--flag"}',
    b'{"type": "turn.completed", "usage": []}', b'{"type": "item.completed", "item": {"type": ["agent_message"]}}',
    b'{"type": "step_finish", "part": {"tokens": {"cache": 3}, "cost": true}}', b'{"type": "error", "error": "text"}',
    b'{"type": "result", "stats": {"input_tokens": true}, "status": 5}',
    b'{"type": "message_end", "message": {"role": "assistant", "usage": {"input": 1e30}, "content": [null, 5]}}',
    b'{"type": "text", "part": {"text": "\\ud800"}}',
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_junk_teaches_nothing(name: str) -> None:
    hear, notes = named(name).hear, Notes()
    assert hear is not None
    for line in JUNK:
        if (event := read_event(line)) is not None:
            hear(event, notes)
    assert (notes.session, notes.dollars) == ("", None)
    assert 0 <= notes.input + notes.output + notes.cached < 10**12


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_an_event_may_be_anything(name: str) -> None:
    hear, recorded = named(name).hear, Path(__file__).parent / "recorded" / f"{name}-edited.jsonl"
    assert hear is not None
    for line in recorded.read_text().splitlines():
        for event in _mangled(json.loads(line)):
            hear(event, Notes())


def _mangled(event: object) -> list[dict[str, object]]:
    """The event with each of its values, at any depth, replaced by others."""
    made: list[dict[str, object]] = []
    if isinstance(event, dict):
        for key, value in event.items():
            made += [event | {key: other} for other in (None, True, -1, 1e308, "x", [], [[]], {}, {"type": {}})]
            made += [event | {key: inner} for inner in _mangled(value)]
    return made


def test_numbers_that_count_nothing() -> None:
    assert [count({"n": n}, "n") for n in (True, -1, 1.5, "5", None, 10**13)] == [0] * 6
    assert [dollars({"n": n}, "n") for n in (True, -1, float("nan"), float("inf"), "5", 1e9)] == [None] * 6
    assert plain("a\x1b[31m\nb\u202e" + "c" * 600).startswith("a?[31m b?ccc")
    assert len(plain("c" * 600)) == 500


def test_lines_without_an_end_are_dropped() -> None:
    taken: list[bytes] = []
    lines = Lines(taken.append)
    for _ in range(40):
        lines.feed(b"x" * (MAX_LINE // 8))
    lines.feed(b"tail\n{}\n\nlast")
    lines.finish()
    assert taken == [b"{}", b"last"]


def test_a_flood_on_both_streams(fake: Fake) -> None:
    body = (
        "out = os.fdopen(1, 'wb', closefd=False)\n"
        "for i in range(12):\n    out.write(os.urandom(1 << 20))\n    os.write(2, b'e' * (1 << 20))\n"
        "out.write(b'y' * (3 << 20) + b'\\n')\nout.flush()\n"
        f"{EDIT}\nshow('claude-edited')"
    )
    turn = fake(body).turn(job())
    assert turn.outcome is Outcome.EDITED
    assert len(turn.said) < 5000


def test_a_message_is_cut(fake: Fake) -> None:
    last = {"type": "result", "subtype": "success", "is_error": False, "result": "Title: " + "long " * 5000}
    turn = fake(f"{EDIT}\nprint({json.dumps(last)!r})").turn(job())
    assert (len(turn.said), len(turn.title)) == (4000, 100)


def test_grandchildren_end_with_the_turn(fake: Fake, tmp_path: Path) -> None:
    """One in its process group, one that left it and closed everything, one that ignores signals."""
    pids = tmp_path / "pids"
    pids.touch()

    def begun() -> list[int]:
        return [int(line) for line in pids.read_text().splitlines(keepends=True) if line.endswith("\n")]

    child = f"import os, signal, time; signal.signal(15, 1); open({str(pids)!r}, 'a').write(str(os.getpid()) + '\\\\n'); time.sleep(100)"
    body = (
        f"code = '{child}'.replace('\"', '')\n".replace("'" + child + "'", repr(child.replace("\\\\n", "\\n")))
        + "subprocess.Popen([sys.executable, '-c', code])\n"
        "subprocess.Popen([sys.executable, '-c', code], start_new_session=True, stdout=-3, stderr=-3, stdin=-3)\n"
        "subprocess.Popen(['/bin/sh', '-c', '(setsid \"$0\" -c \"$1\" &) ', sys.executable, code])\n"
        "time.sleep(100)"
    )
    turn = fake(body).turn(job(limits=Limits(seconds=60, ended=lambda: len(begun()) == 3)))
    assert turn.outcome is Outcome.STOPPED
    assert len(begun()) == 3
    assert not any(alive(pid) for pid in begun())


def test_what_it_leaves_running_ends_with_it(fake: Fake, tmp_path: Path) -> None:
    """And it does not keep the turn open, though it holds the pipes."""
    pids = tmp_path / "pids"
    body = f"p = subprocess.Popen(['/bin/sleep', '100'])\nopen({str(pids)!r}, 'w').write(str(p.pid))\n{EDIT}\nshow('claude-edited')"
    turn = fake(body).turn(job())
    assert turn.outcome is Outcome.EDITED
    assert turn.seconds < job().limits.seconds
    assert not alive(int(pids.read_text()))


def test_no_descriptor_is_lost(fake: Fake) -> None:
    agent = fake(f"{EDIT}\nshow('claude-edited')")
    agent.turn(job())
    before = descriptors()
    for _ in range(3):
        agent.turn(job())
    assert descriptors() == before


def test_a_session_that_would_be_a_flag_is_none(fake: Fake) -> None:
    last = {"type": "result", "subtype": "success", "session_id": "--dangerously", "result": "x"}
    assert fake(f"print({json.dumps(last)!r})").turn(job()).session == ""


@pytest.mark.parametrize("planted", ["settings.json", "", "folder"])
def test_links_in_its_home_do_not_lead_out(fake: Fake, tmp_path: Path, planted: str) -> None:
    """An agent may plant a link where keepfast writes its settings next time."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "settings.json").write_text("mine")
    if planted == "folder":  # in place of the file
        plant = "os.remove(p)\nos.makedirs(p + '/x')"
    elif planted:
        plant = f"os.remove(p)\nos.symlink({str(target / planted)!r}, p)"
    else:
        plant = f"os.rename(os.path.dirname(p), h + '/old')\nos.symlink({str(target)!r}, os.path.dirname(p))"
    home = "h = os.environ['HOME']\np = h + '/.gemini/settings.json'\n"
    fake(f"{home}{plant}\nshow('gemini-edited')", "gemini").turn(job())
    turn = fake(f"{home}{EDIT}\nassert os.path.isfile(p) and not os.path.islink(os.path.dirname(p))\nshow('gemini-edited')", "gemini").turn(
        job()
    )
    assert turn.outcome is Outcome.EDITED
    assert (target / "settings.json").read_text() == "mine"


def test_a_home_made_unusable_is_mended(fake: Fake) -> None:
    body = (
        "h = os.environ['HOME']\nos.rename(h + '/.config', h + f'/{time.time()}')\nopen(h + '/.config', 'w').close()\n"
        f"os.chmod(h + '/.local', 0)\n{EDIT}\nshow('pi-edited')"
    )
    agent = fake(body, "pi")
    assert [agent.turn(job()).outcome for _ in range(2)] == [Outcome.EDITED] * 2
