"""Command lines, environments, homes, keys, conversations, versions."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from keepfast import settings
from keepfast.errors import UsageError
from keepfast.propose.agent import Limits, Outcome
from keepfast.propose.command import NAMES, generic, named
from keepfast.propose.command.agent import PROMPT
from keepfast.propose.command.base import NAMES as TEMPLATE_NAMES
from keepfast.propose.command.base import Options, command_line, filled, names_in
from tests.propose.command.conftest import EDIT, Fake, job

TELL = "import json; json.dump([sys.argv[1:], dict(os.environ), os.getcwd()], open('kernel/told.json', 'w'))\n"


def told(fake: Fake, name: str, **given: object) -> tuple[list[str], dict[str, str], str]:
    work = given.pop("job", None) or job()
    turn = fake(TELL + f"show('{name}-edited')", name, **given).turn(work)  # type: ignore[arg-type]
    assert turn.outcome is Outcome.EDITED, turn
    found = json.loads(dict(turn.changed)["kernel/told.json"] or b"")
    return found[0], found[1], found[2]


def values(**given: str) -> dict[str, str]:
    return dict.fromkeys(TEMPLATE_NAMES, "") | {"prompt": "P", "workspace": "/w", "home": "/h", "turns": "40"} | given


def test_names() -> None:
    assert [named(name).name for name in NAMES] == list(NAMES)
    with pytest.raises(UsageError, match="no agent is called `calude`. Did you mean `claude`?"):
        named("calude")


@pytest.mark.parametrize("name", NAMES)
def test_templates_use_known_names(name: str) -> None:
    spec = named(name)
    words = [word for group in (*spec.argv, *spec.resume) for word in (*group.words, *(f"{{{w.lstrip('!')}}}" for w in group.when))]
    assert {*names_in([*words, *(v.text for v in spec.environment)])} <= {*TEMPLATE_NAMES}


def test_claude_words() -> None:
    line = command_line(named("claude"), values(model="m", dollars="0.5000", caged="yes", api_key="yes"))
    assert line[:4] == ["-p", "P", "--output-format", "stream-json"]
    assert " ".join(line[4:]) == (
        "--verbose --permission-mode acceptEdits --strict-mcp-config --allowedTools Read,Edit,Write,Glob,Grep,Bash --bare --model m"
        " --max-budget-usd 0.5000 --max-turns 40"
    )
    line = command_line(named("claude"), values(session="s1", login="yes"))
    assert "Bash" not in " ".join(line), "it runs no commands where nothing holds them"
    assert "--bare" not in line
    assert line[line.index("--resume") + 1] == "s1"


def test_codex_words() -> None:
    line = command_line(named("codex"), values(base_url="http://h/v1", caged="yes"))
    assert line[0] == "exec"
    assert line[-1] == "P"
    assert "--dangerously-bypass-approvals-and-sandbox" in line
    assert any('base_url="http://h/v1",env_key="KEEPFAST_AGENT_KEY"' in word for word in line)
    line = command_line(named("codex"), values(session="s1"))
    assert line[:2] == ["exec", "resume"]
    assert line[-2:] == ["s1", "P"]
    assert "sandbox_mode=workspace-write" in line


def test_values_are_not_templates() -> None:
    assert filled("{prompt} {unknown} {}", values(prompt="{home}{prompt}")) == "{home}{prompt} {unknown} {}"


@pytest.mark.parametrize(
    ("template", "said"),
    [("", "cannot be read"), ("a 'b", "cannot be read"), ("{home}/x", "must begin with a program"), ("a {promt}", "Did you mean `prompt`")],
)
def test_templates_that_are_none(template: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        generic.spec("mine", template)


def test_the_prompt(fake: Fake) -> None:
    argv, _, cwd = told(fake, "claude", job=job(remark="It was slower."))
    assert argv[1].startswith(PROMPT.splitlines()[0])
    assert "`kernel/**`" in argv[1]
    assert argv[1].endswith("It was slower.")
    assert cwd.endswith("/run/workspace")


def test_the_environment_is_its_own(fake: Fake, tmp_path: Path) -> None:
    _, env, _ = told(fake, "codex", environment={"OTHER": "x"})
    home = str(tmp_path / "run" / "home")
    assert env["HOME"] == home
    assert env["CODEX_HOME"] == f"{home}/.codex"
    assert all(env[f"XDG_{n}_HOME"].startswith(home) for n in ("CONFIG", "DATA", "STATE", "CACHE"))
    assert not env["CODEX_HOME"].startswith(env["TMPDIR"]), "Codex refuses a home below the temporary folder"
    assert "OTHER" not in env


def test_a_key_never_leaves_the_environment(fake: Fake, tmp_path: Path) -> None:
    key = {"ANTHROPIC_API_KEY": "sk-ant-0123456789"}
    last = {"type": "result", "subtype": "success", "result": "Title: my key is sk-ant-0123456789", "session_id": "a"}
    agent = fake(f"{EDIT}\nprint({json.dumps(last)!r})", environment=key)
    turn = agent.turn(job())
    assert (turn.outcome, turn.title) == (Outcome.EDITED, "my key is [key]")
    turn = fake("print('bad key sk-ant-0123456789', file=sys.stderr); sys.exit(1)", environment=key).turn(job())
    assert "bad key [key]" in turn.detail
    files = [p for p in (tmp_path / "run").rglob("*") if p.is_file()]
    assert not any(b"sk-ant-0123456789" in p.read_bytes() for p in files)


def test_a_file_with_a_key_is_not_used(fake: Fake) -> None:
    body = "open('kernel/kernel.c', 'w').write(os.environ['ANTHROPIC_API_KEY'])\nshow('claude-edited')"
    turn = fake(body, environment={"ANTHROPIC_API_KEY": "sk-ant-0123456789"}).turn(job())
    assert (turn.outcome, turn.changed) == (Outcome.MALFORMED, ())
    assert turn.detail == "an editable file holds a key; its files are not used"


def test_keys_do_not_go_to_another_server(fake: Fake) -> None:
    keys = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "OPENAI_API_KEY": "sk-oai-0123456789", "GATE": "gate-0123456789"}
    for name in NAMES:
        model = "given/m" if name in ("opencode", "pi") else "m"
        _, env, _ = told(fake, name, environment=keys, options=Options(model=model, base_url="http://127.0.0.1:9/v1"))
        assert env[named(name).key_variable] == "none"
        assert not [v for v in env.values() if "0123456789" in v]
        variables = json.dumps(env)
        options = Options(model=model, base_url="http://127.0.0.1:9/v1", key="GATE")
        _, env, _ = told_hidden(fake, name, keys, options)
        assert env[named(name).key_variable] == "no file may hold it", variables


def told_hidden(fake: Fake, name: str, keys: dict[str, str], options: Options) -> tuple[list[str], dict[str, str], str]:
    """As told, with the key replaced before it is written, because a file that holds it is not read back."""
    body = "for k, v in list(os.environ.items()):\n    os.environ[k] = v.replace('gate-0123456789', 'no file may hold it')\n"
    turn = fake(body + TELL + f"show('{name}-edited')", name, environment=keys, options=options).turn(job())
    found = json.loads(dict(turn.changed)["kernel/told.json"] or b"")
    return found[0], found[1], found[2]


def test_another_server(fake: Fake, tmp_path: Path) -> None:
    url, home = "http://127.0.0.1:9/v1", tmp_path / "run" / "home"
    assert told(fake, "claude", options=Options(base_url=url))[1]["ANTHROPIC_BASE_URL"] == url
    assert told(fake, "gemini", options=Options(base_url=url))[1]["GOOGLE_GEMINI_BASE_URL"] == url
    told(fake, "opencode", options=Options(base_url=url, model="stub/m1"))
    found = json.loads((home / ".config/opencode/opencode.json").read_text())
    assert found["provider"]["stub"]["options"] == {"baseURL": url, "apiKey": "{env:KEEPFAST_AGENT_KEY}"}
    assert [*found["provider"]["stub"]["models"]] == ["m1"]
    told(fake, "pi", options=Options(base_url=url, model="stub/m1"))
    found = json.loads((home / ".pi/agent/models.json").read_text())
    assert found["providers"]["stub"] | {"models": 0} == {
        "baseUrl": url, "api": "openai-completions", "apiKey": "KEEPFAST_AGENT_KEY", "models": 0,
    }  # fmt: skip


def test_gemini_is_told_how_it_logs_in(fake: Fake, tmp_path: Path) -> None:
    told(fake, "gemini")
    written = tmp_path / "run/home/.gemini/settings.json"
    assert json.loads(written.read_text())["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_a_login_is_copied_only_when_asked(fake: Fake, tmp_path: Path) -> None:
    user = tmp_path / "user"
    (user / ".codex").mkdir(parents=True)
    (user / ".codex/auth.json").write_text('{"token": "tok-abcdefghijklmnopqrstuvwxyz"}')
    copy = tmp_path / "run/home/.codex/auth.json"
    told(fake, "codex")
    assert not copy.exists()
    told(fake, "codex", options=Options(login=str(user)))
    assert copy.read_text() == (user / ".codex/auth.json").read_text()
    last = {"type": "item.completed", "item": {"type": "agent_message", "text": "tok-abcdefghijklmnopqrstuvwxyz"}}
    body = f"print({json.dumps(last)!r})\nshow('codex-unreachable')"
    turn = fake(body, "codex", options=Options(login=str(user))).turn(job())
    assert turn.said == "[key]"
    copy.write_text("renewed by the CLI")
    told(fake, "codex", options=Options(login=str(user)))
    assert copy.read_text() == "renewed by the CLI"


def test_a_conversation_goes_on(fake: Fake, tmp_path: Path) -> None:
    body = TELL + "open(os.environ['HOME'] + '/memory', 'a').write('x')\nshow('codex-edited')"
    agent = fake(body, "codex")
    first = agent.turn(job())
    second = agent.turn(job(session=first.session, remark="Once more."))
    argv = json.loads(dict(second.changed)["kernel/told.json"] or b"")[0]
    assert argv[-2] == first.session == "01a22c73-fa23-7123-823b-24228aed19d0"
    assert "laid out anew" in argv[-1]
    assert argv[-1].endswith("Once more.")
    assert (tmp_path / "run/home/memory").read_text() == "xx"


def test_a_running_total_is_billed_once(fake: Fake) -> None:
    def line(tokens: int) -> str:
        start = {"type": "thread.started", "thread_id": "t-1"}
        end = {
            "type": "turn.completed",
            "usage": {"input_tokens": tokens, "cached_input_tokens": tokens // 2, "output_tokens": tokens // 10},
        }
        return f"print({json.dumps(start)!r})\nprint({json.dumps(end)!r})"

    bills = [fake(line(tokens), "codex").turn(job()).usage for tokens in (100, 250, 250)]
    assert [(u.input_tokens, u.cached_tokens, u.output_tokens) for u in bills] == [(100, 50, 10), (150, 75, 15), (0, 0, 0)]


def test_the_version_is_asked_once_for_a_program(fake: Fake, tmp_path: Path) -> None:
    agent = fake(f"{EDIT}\nshow('claude-edited')")
    assert [agent.turn(job()).version for _ in range(3)] == ["1.2.3"] * 3
    assert (tmp_path / "asked").read_text() == "x"
    program = tmp_path / "bin/claude"
    program.write_text(program.read_text().replace("fake 1.2.3", "fake 1.3.0-beta"), encoding="utf-8")
    assert agent.turn(job()).version == "1.3.0-beta"


def test_money_reaches_the_cli(fake: Fake) -> None:
    argv, _, _ = told(fake, "claude", job=job(limits=Limits(seconds=20, turns=7, dollars=0.25)))
    assert argv[argv.index("--max-budget-usd") + 1] == "0.2500"
    assert argv[argv.index("--max-turns") + 1] == "7"


def test_further_words(fake: Fake) -> None:
    argv, _, _ = told(fake, "pi", options=Options(extra=("--thinking", "high")))
    assert argv[-2:] == ["--thinking", "high"]


def test_what_a_cli_sees_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"HTTPS_PROXY": "http://p", "MY_KEY": "k", "AWS_SECRET": "s", "LD_PRELOAD": "x", "TZ": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KEEPFAST_SECRETS", raising=False)
    found = settings.agent_environment(("MY_KEY", "ABSENT"))
    assert found["HTTPS_PROXY"] == "http://p"
    assert found["MY_KEY"] == "k"
    assert found["PATH"] == settings.agents_path()
    assert not {"AWS_SECRET", "LD_PRELOAD", "TZ", "ABSENT", "HOME"} & found.keys()
    secrets = tmp_path / "secrets"
    secrets.write_text("ABSENT=from-a-file\nOTHER=o\n")
    secrets.chmod(0o600)
    monkeypatch.setenv("KEEPFAST_SECRETS", str(secrets))
    found = settings.agent_environment(("MY_KEY", "ABSENT"))
    assert (found["ABSENT"], "OTHER" in found) == ("from-a-file", False)
