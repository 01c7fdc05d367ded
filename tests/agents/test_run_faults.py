"""What a genuine CLI may do wrong, through `keepfast run`: each is what it is in the ledger, and the run goes on to the right keep.

What a CLI cannot show is in tests/loop/test_agents.py (scripted agents) and tests/propose/command (recorded output).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from keepfast.model import Reason
from keepfast.testing.model_script import Edit, Endless, HalfStream, MalformedToolCall, Reply, Run, Say, Status
from keepfast.testing.model_server import ModelServer
from tests.agents.running import (
    EXAMPLE,
    FASTER,
    FASTER_TUNABLES,
    KERNEL,
    START,
    START_TUNABLES,
    TUNABLES,
    Stand,
    dollars,
    installed,
    section,
)

WRONG = START.replace("y[j] / sum", "y[j] / (sum + 1.0)")
CHEAT = (EXAMPLE / "deck" / "005-remember.patch").read_text()
KEY = "sk-live-0123456789-nobody-may-see-this"
pytestmark = pytest.mark.usefixtures("walled")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def done(title: str) -> Say:
    return Say(f"Title: {title}")


def spying(stand: Stand, secrets: Path) -> str:
    """A command that looks for what is hidden from it, and leaves what it found where it is read back."""
    looks = (
        f"ls -a {stand.folder} {stand.folder}/.git",
        f"strings -a {stand.folder}/.keepfast/ledger.db || cat {stand.folder}/.keepfast/ledger.db",
        f"git -C {stand.folder} log --all",
        "git log --all",
        f"cat {secrets} {os.environ.get('HOME', '/root')}/.netrc",
        "find / -xdev -name ledger.db -o -xdev -name task.toml -o -xdev -name '*.keepfast*'",
        "env",
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'",
        f"touch {stand.task}/reached {stand.folder}/.git/reached",
    )
    return f"({'; '.join(looks)}) > kernel/found.txt 2> /dev/null; true"


@pytest.mark.parametrize("name", ["codex", "opencode"])
def test_bad_edits_and_spies_are_what_they_are(name: str, tmp_path: Path, cache: Path) -> None:
    """One run: it does not compile and looks around; a wrong result; a cheat; nothing but forbidden files, and then a real gain."""
    kind = installed(name)
    stand, secrets = Stand(tmp_path, cache), tmp_path / "secrets"
    secrets.write_text(f"OPENAI_API_KEY={KEY}\n")
    secrets.chmod(0o600)
    turns: tuple[tuple[Reply, ...], ...] = (
        (
            Status(429, retry_after=1),
            Run(spying(stand, secrets)),
            Edit(KERNEL, "    return 0;", "    return nothing;"),
            done("does not compile"),
        ),
        (Status(500), Edit(KERNEL, START, WRONG), done("wrong")),
        (MalformedToolCall(), Run(f"cat > it.patch <<'EOF'\n{CHEAT}EOF\npatch -p1 < it.patch"), done("remembers")),
        (HalfStream(), Run("echo no > other.c; echo no > ../outside.c; echo no > reference.py"), done("elsewhere")),
        (Edit(KERNEL, START, FASTER), Edit(TUNABLES, START_TUNABLES, FASTER_TUNABLES), done("vector lanes")),
    )
    replies = [reply for turn in turns for reply in turn]
    environment = {"KEEPFAST_SECRETS": str(secrets), "ANTHROPIC_API_KEY": KEY}
    with ModelServer(replies, aside=Say("A title")) as server:
        ran = stand.run("mine", section("mine", kind, server), "--experiments", "5", "--goal", "1.2", environment=environment)
    reasons = [(e.verdict.reason, e.verdict.cheat) for e in ran.experiments]
    assert [r for r, _ in reasons] == [Reason.START, Reason.BUILD, Reason.WRONG, reasons[3][0], Reason.FASTER], ran.output
    assert reasons[3][1], "a kernel that remembers its results is a cheat"
    assert [t.outcome for t in ran.turns("mine")] == ["edited", "edited", "edited", "nothing-changed", "edited"]
    assert stand.kept(ran) == FASTER
    assert (server.left, server.problems) == (0, ())
    assert sum(e.tokens for e in ran.experiments) == ran.spent[1] == server.usage().tokens
    assert ran.spent[0] == pytest.approx(dollars(server.usage()))
    found_nothing(stand, stand.git("show", f"refs/keepfast/{ran.run.id}/2:softmax/kernel/found.txt"), ran.output)


def found_nothing(stand: Stand, found: str, output: str) -> None:
    """The spy saw its own workspace and home; nothing of the repository, its history, the ledger, the run's processes or the keys."""
    assert "KEEPFAST_AGENT_KEY=none" in found, "it did look"
    for hidden in (KEY, "a message that only history holds", "CREATE TABLE", "SQLite format", "tests.agents.calmly"):
        assert hidden not in found, hidden
    assert re.findall(r"(?m)^/\S*(?:ledger\.db|task\.toml)$", found) == []
    assert KEY not in output
    assert not (stand.task / "reached").exists()
    assert not (stand.folder / ".git" / "reached").exists()


def test_refused_and_endless_and_yet_faster(tmp_path: Path, cache: Path) -> None:
    """Three agents: one refuses until it is off for the language, one never comes to an end, the third makes it faster."""
    stand = Stand(tmp_path, cache)
    first, second = installed("codex"), installed("opencode")
    good = (Edit(KERNEL, START, FASTER), Edit(TUNABLES, START_TUNABLES, FASTER_TUNABLES), done("vector lanes"))
    with (
        ModelServer((Say("I can't help with that."),), aside=Say("A title"), repeat=True) as refusing,
        ModelServer((Endless(),), aside=Say("A title"), repeat=True) as endless,
        ModelServer(good, aside=Say("A title")) as working,
    ):
        agents = section("shy", first, refusing) + section("endless", second, endless, seconds=15) + section("good", second, working)
        ran = stand.run("shy,endless,good", agents, "--experiments", "2", "--goal", "1.2")
    assert ran.status == 0, ran.output
    assert [e.verdict.reason for e in ran.experiments] == [Reason.START, Reason.FASTER], ran.output
    assert ran.experiments[1].proposer == "good"
    assert [t.outcome for t in ran.turns("shy")][:2] == ["refused", "refused"]
    assert ("shy", "off") in ran.switches()
    assert {t.outcome for t in ran.turns("endless")} <= {"timed-out", "stopped"}
    assert ran.experiments[1].tokens == working.usage().tokens
    assert ran.spent[1] == working.usage().tokens + refusing.usage().tokens
