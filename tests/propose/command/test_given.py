"""The user's file of agents: what it may say, every mistake in it, and what becomes of a section when it has its turn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from keepfast import settings
from keepfast.errors import UsageError
from keepfast.model import File
from keepfast.propose import command
from keepfast.propose.agent import Job, Limits, Outcome, Turn, Usage
from keepfast.propose.command import given
from keepfast.propose.command.agent import CommandAgent, Setup
from keepfast.propose.command.base import Options
from keepfast.propose.command.cage import Plain
from keepfast.propose.prices import Price

KEY = "sk-a-key-that-nobody-may-see"
MINE = '[mine]\nargv = "my-agent --dir {workspace} {prompt}"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that KEEPFAST_AGENTS names; it is not there yet."""
    monkeypatch.setenv("KEEPFAST_AGENTS", str(tmp_path / "agents.toml"))
    return tmp_path / "agents.toml"


def test_without_a_file_the_clis_are_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEEPFAST_AGENTS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert (settings.agents_file(), command.names()) == (None, command.NAMES)
    assert command.named("codex") == command.built_in("codex")
    agent = command.hire("codex", Setup(tmp_path / "a", Plain()))
    assert isinstance(agent, CommandAgent)
    assert (agent.name, agent.options) == ("codex", Options())


def test_the_file_lies_in_the_users_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEEPFAST_AGENTS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "keepfast").mkdir()
    (tmp_path / "keepfast" / "agents.toml").write_text(MINE)
    assert command.names() == (*command.NAMES, "mine")


def test_a_cli_at_another_server(file: Path, tmp_path: Path) -> None:
    file.write_text(
        '[local]\nkind = "codex"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\nkey = "MY_KEY"\nextra = ["-x"]\ntools = ["~/cc"]\n'
    )
    agent = command.hire("local", Setup(tmp_path / "a", Plain()))
    assert isinstance(agent, CommandAgent)
    assert (agent.name, agent.spec.name, agent.spec.program) == ("local", "local", "codex")
    assert agent.options == Options("", "m", "http://127.0.0.1:1/v1", "MY_KEY", ("-x",), (str(Path("~/cc").expanduser()),))


def test_an_unknown_name_lists_the_users_own(file: Path) -> None:
    file.write_text(MINE)
    with pytest.raises(UsageError, match=r"no agent is called `mime`. Did you mean `mine`\?"):
        command.named("mime")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is not TOML"),
        ('model = "m"', "[model]: stands outside of a section"),
        ('[codex]\nmodell = "m"', "[codex]: has no field `modell`. Did you mean `model`?"),
        ("[codex]\nmodel = 3", "Expected `str`, got `int` - at `$.model`"),
        ("[codex]\nseconds = 0", "Expected `float` > 0.0 - at `$.seconds`"),
        ("[codex]\nturns = 0", "Expected `int` >= 1"),
        ('[x]\nkind = "codexx"', "[x]: kind `codexx` is not known. Did you mean `codex`?"),
        ('[codex]\nkind = "claude"', "under the name of another CLI"),
        ("[x]\nmodel = 'm'", "[x]: says neither which CLI it is nor its command"),
        ('[x]\nkind = "codex"\nargv = "a"', "`argv` is for another command"),
        ('[codex]\nargv = "a"', "`argv` is for another command"),
        ('[search]\nargv = "a"', "[search]: is taken"),
        ('[Mine]\nargv = "a"', "[Mine]: is no name"),
        ('["a/b"]\nargv = "a"', "is no name"),
        ('[x]\nargv = "a {promt}"', "`{promt}` in the command of an agent is not known. Did you mean `prompt`?"),
        ('[x]\nargv = "a \\"b"', "cannot be read"),
        ('[x]\nargv = "{prompt}"', "must begin with a program"),
        ('[x]\nargv = "a"\nenvironment = { A = "{modell}" }', "`{modell}` in the command"),
        ('[x]\nargv = "a"\nenvironment = { "A B" = "c" }', "`A B` is no name of a variable"),
        (f'[x]\nargv = "a"\nkey = "{KEY}"', "never the key itself"),
        ('[codex]\nkey = "OPENAI_API_KEY"', "`key` goes with `base_url`"),
        (f'[codex]\nbase_url = "http://user:{KEY}@host/v1"', "without user, password or query"),
        ('[codex]\nbase_url = "host:8000"', "`base_url` must be http:// or https://"),
        ('[codex]\nbase_url = "http://[::1"', "`base_url` must be http:// or https://"),
        ('[codex]\nlogin = "home"', "`login` must be absolute"),
        ('[codex]\ntools = ["gcc"]', "`tools` must be absolute"),
        ("[codex]\nprice = { input = 1 }", "missing required field `output`"),
    ],
)
def test_every_mistake_is_said_without_a_key(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        command.names()
    words = caught.value.text()
    assert said in words
    assert str(file) in words
    assert KEY not in words


def test_a_file_that_cannot_be_read(file: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: FileNotFoundError"):
        command.names()


# --------------------------------------------------------------------------------------------- its turn


class Told:
    """An agent that remembers its jobs and costs the same tokens each time."""

    name = "told"

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def turn(self, job: Job) -> Turn:
        self.jobs.append(job)
        return Turn(Outcome.NOTHING, usage=Usage(1_000_000, 100_000, 500_000, dollars=99.0))


JOB = Job((File("k.c", b"int a;\n"),), (), "Make it faster.", limits=Limits(900.0, 40, 5.0), editable=("k.c",))


def test_limits_are_the_users_and_money_never_more_than_is_left() -> None:
    agent = Told()
    given.OnTerms(agent, given.Entry(seconds=1800.0, turns=10, dollars=2.0)).turn(JOB)
    given.OnTerms(agent, given.Entry(dollars=7.0)).turn(JOB)
    assert agent.jobs[0].limits == Limits(1800.0, 10, 2.0)
    assert agent.jobs[1].limits == Limits(900.0, 40, 5.0)


def test_the_users_own_price_comes_before_the_clis() -> None:
    terms = given.OnTerms(Told(), given.Entry(price=Price(2.0, 10.0, 0.2)))
    assert (terms.name, terms.turn(JOB).usage.dollars) == ("told", pytest.approx(2.1))


def test_any_command_by_a_template(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It edits in its workspace, sees the key that is named and no other, and the variables that its section gives it."""
    program = tmp_path / "bin" / "my-agent"
    program.parent.mkdir()
    said = "print(sorted(k for k in os.environ if k.startswith(('MY_', 'OPENAI', 'AT'))), os.environ['AT'] == os.getcwd())"
    program.write_text(f"#!{sys.executable} -IS\nimport os, sys\nopen('k.c', 'w').write('int b;\\n')\n{said}\n")
    program.chmod(0o755)
    for name in ("MY_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    file.write_text(
        '[mine]\nargv = "my-agent --dir {workspace} {prompt}"\nkey = "MY_KEY"\nseconds = 30\nenvironment = { AT = "{workspace}" }\n'
    )
    turn = command.hire("mine", Setup(tmp_path / "run", Plain())).turn(JOB)
    assert (turn.outcome, turn.changed) == (Outcome.EDITED, (("k.c", b"int b;\n"),)), turn
    assert turn.said == "['AT', 'MY_KEY'] True"
